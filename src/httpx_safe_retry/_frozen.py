"""The request as it was before attempt 1: what every attempt is made from.

A wrapped transport may do what it likes to the request that it is given (add headers, rewrite the
URL, empty the extensions): no later attempt shows it, and the caller's own request is never changed
by us.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._budget import Origin
from ._private import header_lines, origin_of

if TYPE_CHECKING:
    import httpx

    from ._trace import SendProgress

_TIMEOUTS = ("connect", "read", "write", "pool")

_LONGEST = 2_000_000.0
"""Seconds that a socket can be told to wait: poll() takes an int of milliseconds, and CPython lets
longer ones wrap around, so that they may end at once.
"""


def is_same(one: httpx.Request, other: httpx.Request | FrozenRequest) -> bool:
    """Whether both are one request, as far as method and URL tell: a layer may have made its own
    of it, even in another library's classes.
    """
    return (
        one.method == other.method
        and origin_of(one.url) == origin_of(other.url)
        and one.url.raw_path == other.url.raw_path
    )


class FrozenRequest:
    """Method, URL, headers and extensions of one logical request; `_body.py` keeps its body."""

    __slots__ = (
        "extensions",
        "headers",
        "method",
        "outgoing",
        "progress",
        "request",
        "stream",
        "url",
    )

    def __init__(self, request: httpx.Request) -> None:
        self.request = request
        """The caller's own."""
        self.method = request.method
        self.url = request.url
        self.headers = header_lines(request.headers)
        """Each line as (name as sent, name in lower case, value)."""
        self.extensions: dict[str, Any] = {**request.extensions}
        self.stream = request.stream
        self.outgoing = request
        """What the first attempt sends."""
        self.progress: SendProgress | None = None
        """What follows how far that gets, if something does."""

    @property
    def origin(self) -> Origin:
        """What the retry budget is kept for."""
        return origin_of(self.url)

    def has_header(self, names: frozenset[bytes]) -> bool:
        """Whether a header of one of these names (in lower case) has a value that isn't blank."""
        return any(name in names and value.strip() for _, name, value in self.headers)

    def trace(self, progress: SendProgress) -> None:
        """Let `progress` follow the first attempt."""
        self.progress = progress
        self.outgoing = request = self._blank()
        request.extensions = {**self.extensions, "trace": progress.callback}

    def count_anew(self) -> None:
        """Leave out the number of another request's attempt, whose extensions were handed on."""
        if self.extensions.pop("retry_attempt", None) is not None:
            self.outgoing = request = self._blank()
            request.extensions = {**self.extensions}

    def let_go(self) -> None:
        """Keep no more than a report is made of: that may outlive the request, body and all."""
        del self.request, self.outgoing, self.stream, self.extensions
        self.progress = None

    def _blank(self) -> httpx.Request:
        # Like copy.copy, which a Request makes lossy: its state for pickling leaves out stream and
        # extensions. The constructor would parse and encode everything anew, at ten times the cost.
        kind = type(self.request)
        request = kind.__new__(kind)
        vars(request).update(vars(self.request))
        return request

    def copy(
        self,
        *,
        first: bool,
        stream: httpx.SyncByteStream | httpx.AsyncByteStream | None,
        headers: Mapping[str, str],
        extensions: Mapping[str, Any],
    ) -> httpx.Request:
        """Return a request of its own for one attempt.

        `headers` and `extensions` replace those of the same name; `stream`, if given, the body.
        """
        request = self._blank()
        request.method = self.method
        request.url = self.url
        request.stream = self.stream if stream is None else stream
        if headers or not first:
            # The first attempt may share the caller's headers, as it does without us.
            lines = [(name, value) for name, _, value in self.headers]
            request.headers = type(request.headers)(lines)
            request.headers.update(headers)
        request.extensions = {**self.extensions, **extensions}
        return request

    def timeouts(self, remaining: float | None) -> dict[str, float | None]:
        """Return the caller's own timeouts, none of them longer than `remaining` seconds."""
        given: Mapping[str, float | None] = self.extensions.get("timeout") or {}
        cut = {**dict.fromkeys(_TIMEOUTS), **given}
        if remaining is None or remaining > _LONGEST:
            return cut
        return {
            name: remaining if own is None else min(own, remaining) for name, own in cut.items()
        }
