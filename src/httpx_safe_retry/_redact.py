"""What may be shown of a request: method, scheme, host, port and path. Nothing else of it is
written down.

Error texts are the leak that is easily missed: h11 quotes an illegal header value, and with it a
token or an idempotency key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

# What everybody sends, or what is shown anyway.
_HARMLESS = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"accept-language",
        b"connection",
        b"content-length",
        b"content-type",
        b"host",
        b"transfer-encoding",
        b"user-agent",
    }
)

_LONGEST_TEXT = 200


def shown_url(url: httpx.URL) -> str:
    """Return scheme, host, port and path of a URL.

    The path stays percent-encoded, so that it can't break a log line.
    """
    host = url.raw_host.decode("ascii")
    if ":" in host:
        host = f"[{host}]"
    port = "" if url.port is None else f":{url.port}"
    path = url.raw_path.partition(b"?")[0].decode("ascii")
    return f"{url.scheme}://{host}{port}{path}"


def shown_text(text: str, url: httpx.URL, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return an error's text as one short printable line; withheld if it quotes something
    secret.
    """
    if any(secret in text for secret in _secrets(url, headers)):
        return "text withheld: it quotes the request"
    line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]}..."


def _secrets(url: httpx.URL, headers: Iterable[tuple[bytes, bytes]]) -> Iterable[str]:
    values = [value for name, value in headers if name.lower() not in _HARMLESS]
    values += [url.userinfo, url.query, url.fragment.encode()]
    for value in values:
        for part in {value, *value.split()}:
            if part:
                yield part.decode("latin-1")
                # As repr() writes it, which is how h11 quotes.
                yield repr(part)[2:-1]
