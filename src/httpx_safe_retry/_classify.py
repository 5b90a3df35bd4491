"""What one attempt proves, and whether sending the same again may succeed.

One table for answers, one for errors. Both are pure, and go by type and structure, never by words,
except where httpcore gives nothing else. The HTTP library is not imported: its errors are known by
their public names, so that the same table serves httpx and its kin.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

from ._outcome import Evidence, Verdict
from ._policy import RetryPolicy

FAMILIES = frozenset({"httpx", "httpx2"})
"""The modules whose error classes the table below names."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one attempt proves."""

    evidence: Evidence
    transient: bool
    reason: str
    speaks_for_key: bool = False
    """Whether it is the server's word on the key itself, and so on every attempt that carried it.
    """
    answered: bool = False
    """Whether there is an answer to hand out. A success that got lost on the way is none."""

    @property
    def success(self) -> bool:
        """Whether the request is done."""
        return self.answered and self.evidence is Evidence.EXECUTED and not self.transient

    def amended(self, verdict: Verdict | None) -> Finding:
        """Return the finding with what the policy's own `classify` said about it."""
        if verdict is None:
            return self
        return Finding(
            self.evidence if verdict.evidence is None else verdict.evidence,
            verdict.transient,
            verdict.reason or self.reason,
            # Where the policy knows better what the status means, the status speaks for nothing.
            self.speaks_for_key
            and not verdict.transient
            and verdict.evidence in (None, Evidence.REFUSED),
            self.answered,
        )


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
    evidence, transient = _row(policy, status, valid_retry_after)
    words = f"answered {_name(status)}"
    if keyed and replayed:
        # Asking again gives it again, so that it is never transient.
        words = f"{words}, the recorded result of this key"
        # A recorded 408 is as ambiguous as any: whoever gave up may have given up too early.
        speaks = 400 <= status < 500 and evidence is Evidence.REFUSED
        return Finding(evidence, False, words, speaks, answered=True)
    if keyed and status == HTTPStatus.CONFLICT and after_ambiguous:
        words = f"{words}: an earlier attempt is still running"
        return Finding(Evidence.AMBIGUOUS, True, words, answered=True)
    # "Try again later" judges nothing: the key may not have been looked up.
    speaks = status in _JUDGE_THE_REQUEST and not transient
    return Finding(evidence, transient, words, speaks, answered=True)


def _row(policy: RetryPolicy, status: int, valid_retry_after: bool) -> tuple[Evidence, bool]:
    if status in policy.refusal_statuses:
        return Evidence.REFUSED, True
    transient = status in policy.statuses
    # Every other 1xx is an interim answer (RFC 9110 section 15.2), which says nothing yet.
    if status == HTTPStatus.SWITCHING_PROTOCOLS or 200 <= status < 400:
        # Listing a success as transient ("202: not ready yet") doesn't undo that the server ran it.
        return Evidence.EXECUTED, transient
    if status in _REFUSING_5XX:
        return Evidence.REFUSED, transient
    if 400 <= status < 500 and status != HTTPStatus.REQUEST_TIMEOUT:
        # RFC 9110 section 15.5.14: with a Retry-After a 413 is temporary.
        return Evidence.REFUSED, transient or (status == 413 and valid_retry_after)
    return Evidence.AMBIGUOUS, transient


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

# What comes out of httpcore as it is: what h2 objects to in the body of an answer, and the end of a
# TLS connection that anyio meets while it writes.
_LEAKED = {
    ("h2.exceptions", "ProtocolError"): "RemoteProtocolError",
    ("anyio", "EndOfStream"): "WriteError",
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
    if answer is not None:
        # The status has been said, whatever became of the body. Only bodies framed by their length
        # are read, so that an error in one is a lost connection, whoever words it.
        reason = f"{answer.reason}, then {name} in its body"
        return Finding(answer.evidence, _ERRORS[name][1], reason, answer.speaks_for_key)
    return _without_answer(policy, error, name, never_sent, stream_id)


def _without_answer(
    policy: RetryPolicy, error: BaseException, name: str, never_sent: bool, stream_id: int | None
) -> Finding:
    evidence, transient = _ERRORS[name]
    chain = list(causes(error))
    refusal = _refused_by_http2(chain, stream_id)
    if refusal is not None:
        return Finding(Evidence.REFUSED, True, refusal)
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in chain):
        return Finding(_N, False, f"{name}: the server's certificate is not trusted")
    if never_sent:
        evidence, transient = _N, transient or name == "TransportError"
    if any(_rejects_our_certificate(cause) for cause in chain):
        return Finding(evidence, False, f"{name}: the server does not trust our certificate")
    if name == "ConnectError" and _offline(chain):
        return Finding(_N, policy.offline, "ConnectError: the network is unreachable")
    if name == "ProxyError":
        return Finding(evidence, _tunnel_may_open(error), "ProxyError: the proxy opened no tunnel")
    if name == "LocalProtocolError" and _from(chain, "h11", "LocalProtocolError"):
        # httpcore maps this class only where it builds the head, before anything is written.
        evidence = _N
    if name == "LocalProtocolError" and _closed_by_http2(chain):
        return Finding(evidence, True, "LocalProtocolError: the server closed the connection")
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
        members: object = getattr(current, "exceptions", ())
        if not isinstance(members, tuple):
            members = ()
        parts = cast("tuple[object, ...]", members)
        made_from: list[object] = [current.__cause__, *current.args[:1], *parts]
        queue.extend(found for found in made_from if isinstance(found, BaseException))


def known_name(cls: type[BaseException]) -> str | None:
    """Return the name under which the table knows an error class, or None."""
    for base in cls.__mro__:
        if base.__module__ in FAMILIES and base.__name__ in _ERRORS:
            return base.__name__
        leaked = _LEAKED.get((base.__module__, base.__name__))
        if leaked is not None:
            return leaked
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


def _closed_by_http2(chain: list[BaseException]) -> bool:
    # For h2, a connection is closed as soon as a GOAWAY has come in, although the server goes on
    # with what it has taken (RFC 9113 section 6.8): the rest of the answer, or our next frame, is
    # then an error, and httpcore takes it for ours. h2 makes it from the state that it was in.
    for cause in chain:
        missed: object = cause.args[0] if isinstance(cause, KeyError) and cause.args else None
        if isinstance(missed, tuple) and missed:
            state = cast("tuple[object, ...]", missed)[0]
            if getattr(state, "name", None) == "CLOSED":
                return True
    return False


def _int(event: Any, name: str) -> int | None:
    value = getattr(event, name, None)
    return value if isinstance(value, int) else None


# Up to TLS 1.2 a certificate that is missing is a handshake failure (RFC 5246 section 7.4.6).
_DISTRUST = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE")


def _rejects_our_certificate(error: BaseException) -> bool:
    # OpenSSL names the alert that the peer sent (RFC 8446 section 6.2) in `reason`. It proves
    # nothing of the request: a server may end a connection in use over a certificate that expired.
    reason = str(getattr(error, "reason", "")) if isinstance(error, ssl.SSLError) else ""
    return "ALERT" in reason and any(word in reason for word in _DISTRUST)


_UNREACHABLE = (errno.ENETUNREACH, errno.ENETDOWN)


def _offline(chain: list[BaseException]) -> bool:
    # With several addresses each has an error of its own: one that was refused means that there is
    # a network.
    numbers = [cause.errno for cause in chain if isinstance(cause, OSError) and cause.errno]
    return bool(numbers) and all(number in _UNREACHABLE for number in numbers)


# The other replies (RFC 1928 section 6) are as a 403 or a 501.
_SOCKS_MAY_CONNECT = (
    "General SOCKS server failure",
    "Network unreachable",
    "Host unreachable",
    "Connection refused",
    "TTL expired",
)


def _tunnel_may_open(error: BaseException) -> bool:
    # httpcore gives the proxy's answer only as text: "503 Service Unavailable" of an HTTP proxy, or
    # "Proxy Server could not connect: Host unreachable." of a SOCKS proxy.
    status, _, words = str(error).partition(" ")
    if status.isdecimal() and len(status) == 3:
        return status.startswith("5") and int(status) not in _REFUSING_5XX
    return words.rstrip(".").endswith(_SOCKS_MAY_CONNECT)


def _from(chain: list[BaseException], package: str, name: str) -> bool:
    return any(
        cls.__name__ == name and cls.__module__.partition(".")[0] == package
        for cause in chain
        for cls in type(cause).__mro__
    )
