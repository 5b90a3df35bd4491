"""What may be shown of a request: method, scheme, host, port and path. Nothing else of it is
written down.

Error texts are the leak that is easily missed: h11 quotes an illegal header value, and with it a
token or an idempotency key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    import httpx

# What everybody sends, or what is shown anyway.
_HARMLESS = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"accept-language",
        b"cache-control",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"dnt",
        b"expect",
        b"host",
        b"pragma",
        b"te",
        b"transfer-encoding",
        b"upgrade-insecure-requests",
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
    """Return an error's text as one short line; withheld if it may quote something secret."""
    if any(_quotes(text, secret) for secret in _secrets(url, headers)):
        return "text withheld: it may quote the request"
    line = "".join(char if char.isprintable() else " " for char in text)
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]}..."


_SEPARATORS = re.compile(rb"[\s;,&=\"]+")

_SHORTEST_PART = 4
"""Shorter parts of a value are words like "a", or numbers: every other text would quote them."""


def _secrets(url: httpx.URL, headers: Iterable[tuple[bytes, bytes]]) -> Iterator[str]:
    wholes = [value for name, value in headers if name.lower() not in _HARMLESS]
    wholes += [url.userinfo, *url.userinfo.split(b":"), url.query, url.fragment.encode()]
    for whole in wholes:
        parts = _SEPARATORS.split(whole)
        for value in {whole, *(part for part in parts if len(part) >= _SHORTEST_PART)}:
            for form in {value, unquote_to_bytes(value)}:
                yield form.decode("latin-1")
                yield form.decode("utf-8", "replace")
                # As repr() writes it, which is how h11 quotes.
                yield repr(form)[2:-1]


def _quotes(text: str, secret: str) -> bool:
    # As a word of its own: "1" is not quoted by "[Errno 111]".
    if not secret.strip() or secret not in text:
        return False
    start = r"(?<!\w)" if secret[0].isalnum() else ""
    end = r"(?!\w)" if secret[-1].isalnum() else ""
    return re.search(f"{start}{re.escape(secret)}{end}", text) is not None
