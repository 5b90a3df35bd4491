"""What one attempt proves, and whether sending the same again may succeed.

This is DESIGN section 2 as code: one function for answers, one for errors. Both are pure, and go by
type and structure. The HTTP library is not imported: its errors are known by their public names, so
that the same table serves httpx and its kin.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ._outcome import Evidence, Verdict
from ._policy import RetryPolicy

FAMILIES = frozenset({"httpx", "httpx2"})
"""The modules whose error classes the table below names."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one attempt proves. `speaks_for_key`: it is the server's word on the key itself."""

    evidence: Evidence
    transient: bool
    reason: str
    speaks_for_key: bool = False

    @property
    def success(self) -> bool:
        """Whether the request is done."""
        return self.evidence is Evidence.EXECUTED and not self.transient

    def amended(self, verdict: Verdict | None) -> Finding:
        """Return the finding with what the policy's own `classify` said about it."""
        if verdict is None:
            return self
        evidence = self.evidence if verdict.evidence is None else verdict.evidence
        return Finding(evidence, verdict.transient, verdict.reason, self.speaks_for_key)


# Answers ------------------------------------------------------------------------------------------

# The server doesn't know how to run such a request (RFC 9110 sections 15.6.2 and 15.6.6), or a
# network in between wants a login first (RFC 6585 section 6).
_REFUSING_5XX = frozenset({501, 505, 511})

# A server that honours the key judges the request itself only after looking the key up; its layers
# in front (authentication, rate limits, routing) answer before that, and know nothing of an earlier
# attempt.
_JUDGE_THE_REQUEST = frozenset({400, 404, 405, 406, *range(410, 418), 422, 423, 424})


def classify_answer(
    policy: RetryPolicy,
    status: int,
    *,
    keyed: bool = False,
    replayed: bool = False,
    valid_retry_after: bool = False,
    after_ambiguous: bool = False,
) -> Finding:
    """Return what an answer proves.

    `replayed`: it is marked `Idempotent-Replayed: true`. `after_ambiguous`: an earlier attempt of
    the same logical request may have run.
    """
    words = f"answered {_name(status)}"
    transient = status in policy.statuses or status in policy.refusal_statuses
    if 100 <= status < 400:
        # Listing a success as transient ("202: not ready yet") doesn't undo that the server ran it.
        return Finding(Evidence.EXECUTED, transient, words)
    if replayed and keyed:
        refused = status < 500 or status in policy.refusal_statuses or status in _REFUSING_5XX
        evidence = Evidence.REFUSED if refused else Evidence.AMBIGUOUS
        words = f"{words}, the recorded result of this key"
        return Finding(evidence, False, words, speaks_for_key=status < 500)
    if status == 409 and keyed and after_ambiguous:
        return Finding(Evidence.AMBIGUOUS, True, f"{words}: an earlier attempt is still running")
    if status in policy.refusal_statuses or status in _REFUSING_5XX:
        return Finding(Evidence.REFUSED, transient, words)
    if status == 413 and valid_retry_after:
        # RFC 9110 section 15.5.14: with a Retry-After the condition is temporary.
        return Finding(Evidence.REFUSED, True, words, speaks_for_key=True)
    if 400 <= status < 500 and status != HTTPStatus.REQUEST_TIMEOUT:
        return Finding(
            Evidence.REFUSED, transient, words, speaks_for_key=status in _JUDGE_THE_REQUEST
        )
    return Finding(Evidence.AMBIGUOUS, transient, words)


def _name(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


# Errors -------------------------------------------------------------------------------------------

_N, _A = Evidence.NOT_SENT, Evidence.AMBIGUOUS

_ERRORS: dict[str, tuple[Evidence, bool]] = {
    "PoolTimeout": (_N, True),
    "ConnectTimeout": (_N, True),
    "ConnectError": (_N, True),
    "ReadTimeout": (_A, True),
    "WriteTimeout": (_A, True),
    "TimeoutException": (_A, True),
    "ReadError": (_A, True),
    "WriteError": (_A, True),
    "CloseError": (_A, True),
    "NetworkError": (_A, True),
    "RemoteProtocolError": (_A, True),
    "ProxyError": (_N, False),
    "UnsupportedProtocol": (_N, False),
    "LocalProtocolError": (_A, False),
    "ProtocolError": (_A, False),
    "TransportError": (_A, False),
    "DecodingError": (_A, False),
    "TooManyRedirects": (_A, False),
    "RequestError": (_A, False),
}

_REFUSED_STREAM = 7  # RFC 9113 section 7


def classify_error(
    policy: RetryPolicy,
    error: BaseException,
    *,
    never_sent: bool = False,
    stream_id: int | None = None,
    answer: Finding | None = None,
) -> Finding | None:
    """Return what a transport error proves; None for anything else, which is the caller's to see.

    `never_sent`: the trace shows that the head of the request never went out whole. `stream_id`:
    the HTTP/2 stream that carried it, if known. `answer`: what the answer proved whose body was
    being read.
    """
    name = known_name(type(error))
    if name is None:
        return None
    evidence, transient = _ERRORS[name]
    if answer is not None:
        # The status has been said, whatever became of the body. Only bodies framed by their length
        # are read, so that an error in one is a lost connection, whoever words it.
        reason = f"{answer.reason}, then {name} in its body"
        return Finding(answer.evidence, transient, reason, answer.speaks_for_key)
    chain = list(causes(error))
    refusal = _refused_by_http2(chain, stream_id)
    if refusal is not None:
        return Finding(Evidence.REFUSED, True, refusal)
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in chain):
        return Finding(_N, False, f"{name}: the server's certificate is not trusted")
    if never_sent:
        evidence = _N
    if any(_rejects_our_certificate(cause) for cause in chain):
        return Finding(evidence, False, f"{name}: the server does not trust our certificate")
    if name == "ConnectError" and _offline(chain):
        return Finding(_N, policy.offline, "ConnectError: the network is unreachable")
    if name == "ProxyError":
        return Finding(_N, _tunnel_may_open(error), "ProxyError: the proxy opened no tunnel")
    if name == "LocalProtocolError" and _from(chain, "h11", "LocalProtocolError"):
        # httpcore maps this class only where it builds the head, before anything is written.
        evidence = _N
    if name == "RemoteProtocolError" and _from(chain, "h11", name) and not never_sent:
        return Finding(evidence, False, "RemoteProtocolError: the answer is malformed")
    return Finding(evidence, transient, name)


def causes(error: BaseException, limit: int = 100) -> Iterator[BaseException]:
    """Yield an error and what it was made from, members of groups included, each once.

    Only what was named as its cause. The context of an exception is whatever was being handled
    anywhere up the stack: with a fallback inside an `except` block, the failure of another request.
    httpcore cuts its causes off (`raise exc from None`), but each of its errors was made with the
    original one as its argument.

    A chain may be cyclic, and as long as somebody's retry loop: the walk ends after `limit`.
    """
    queue = [error]
    seen: set[int] = set()
    while queue and len(seen) < limit:
        current = queue.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        members = getattr(current, "exceptions", ())
        if not isinstance(members, tuple):
            members = ()
        made_from = (current.__cause__, *current.args[:1], *members)
        queue.extend(found for found in made_from if isinstance(found, BaseException))


def known_name(cls: type[BaseException]) -> str | None:
    """Return the name in the table below which an error class is known, or None."""
    for base in cls.__mro__:
        if base.__module__ in FAMILIES and base.__name__ in _ERRORS:
            return base.__name__
    return None


def _refused_by_http2(chain: list[BaseException], stream_id: int | None) -> str | None:
    # RFC 9113 section 8.7: REFUSED_STREAM, and streams above a GOAWAY's last one, were not
    # processed at all. httpcore hands the h2 event on as the error's first argument.
    for event in (cause.args[0] for cause in chain if cause.args):
        last = _int(event, "last_stream_id")
        if last is not None and (last == 0 or (stream_id is not None and stream_id > last)):
            return "the server went away (GOAWAY) before it took the request"
        if _int(event, "error_code") == _REFUSED_STREAM and getattr(event, "remote_reset", False):
            return "the server refused the stream (REFUSED_STREAM)"
    return None


def _int(event: Any, name: str) -> int | None:
    value = getattr(event, name, None)
    return value if isinstance(value, int) else None


def _rejects_our_certificate(error: BaseException) -> bool:
    # OpenSSL names the alert that the peer sent (RFC 8446 section 6.2) in `reason`.
    reason = str(getattr(error, "reason", "")) if isinstance(error, ssl.SSLError) else ""
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)


_UNREACHABLE = frozenset({errno.ENETUNREACH, errno.ENETDOWN})


def _offline(chain: list[BaseException]) -> bool:
    # With several addresses each has an error of its own: one that was refused means that there is
    # a network.
    numbers = [cause.errno for cause in chain if isinstance(cause, OSError) and cause.errno]
    return bool(numbers) and _UNREACHABLE.issuperset(numbers)


def _tunnel_may_open(error: BaseException) -> bool:
    # httpcore gives the proxy's answer only as text: "503 Service Unavailable" of an HTTP proxy, or
    # a SOCKS proxy's reply to the connect.
    text = str(error)
    status = text[:3]
    if status.isdecimal():
        return status.startswith("5") and int(status) not in _REFUSING_5XX
    return text.startswith("Proxy Server could not connect")


def _from(chain: list[BaseException], package: str, name: str) -> bool:
    return any(
        cls.__name__ == name and cls.__module__.partition(".")[0] == package
        for cause in chain
        for cls in type(cause).__mro__
    )
