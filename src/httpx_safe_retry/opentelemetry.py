"""OpenTelemetry: a listener that records retries, and the attempt's number on its own span.

The rule: metrics hold a bounded number of time series, whatever is requested. Their attributes are
words of this library, the methods that the conventions know, and no more than `max_servers`
servers. What may take any value, like a reason, is for span events alone.

No span is made here, so that the API package is all that is needed. The spans of the attempts come
from `opentelemetry-instrumentation-httpx`, inside the transport that `RetryTransport` wraps.

Source: OpenTelemetry's semantic conventions for HTTP client spans and metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from ._checks import check_integer
from ._events import Listener, RequestFinished, RetryEvent, RetryRefused, RetryScheduled
from ._outcome import Outcome
from ._report import Attempt, RetryReport

try:
    from opentelemetry import metrics, trace
except ImportError as error:
    raise ImportError(
        "httpx_safe_retry.opentelemetry needs the OpenTelemetry API: "
        "pip install 'httpx-safe-retry[opentelemetry]'"
    ) from error

__all__ = ["async_request_hook", "opentelemetry_listener", "request_hook"]

_NAME = "httpx_safe_retry"
"""Of the instrumentation scope, and what the names of metrics and events begin with."""

_METHODS = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"}
)

_OTHER = "_OTHER"
"""What the conventions call a method that is not among these. Used for a server, too."""

_Attributes = dict[str, "str | bool | int | float"]


def opentelemetry_listener(
    *, meter_provider: metrics.MeterProvider | None = None, max_servers: int = 100
) -> Listener:
    """Return a listener that records metrics, and span events on the current span.

        client = httpx.Client(transport=RetryTransport(listeners=[opentelemetry_listener()]))

    meter_provider: where the metrics go. Left out: the global one, also if it is set later.
    max_servers: how many servers the metrics tell apart. Further ones are all `_OTHER`, so that
        whoever requests what strangers name (webhooks, links) does not fill the backend.

    Make one and share it among transports: each counts its servers by itself. Where one
    `RetryTransport` is inside another, all may have it: what an inner one tells of the same request
    is left out, and what was sent on the way elsewhere (by an app, or for a token) is recorded.

    Metrics, once for each logical request, when it ends:

        httpx_safe_retry.request.attempts   histogram, {attempt}: how many attempts it took
        httpx_safe_retry.request.outcomes   counter, {request}: with `outcome`, `stop_reason`
        httpx_safe_retry.request.slept      histogram, s: time spent between attempts, if any was
        httpx_safe_retry.uncertain_writes   counter, {request}: writes that may have run or not,
                                            with `stop_reason`, `replay_safe`

    Each of them has `http.request.method` (`_OTHER` for what the conventions don't know),
    `server.address`, and `server.port` where it isn't the scheme's default. The default one is left
    out as `opentelemetry-instrumentation-httpx` leaves it out, so that its metrics and these can be
    joined; but for hosts in another script, which are recorded as they go over the wire
    (`xn--...`) and not as httpx shows them. `outcome` and `stop_reason` are the values of `Outcome`
    and `StopReason`.

    Events on the span that is current around the request (not on an attempt's, which is over):

        httpx_safe_retry.retry_scheduled    `delay` (s), `delay_source`, `max_attempts`
        httpx_safe_retry.retry_refused      `stop_reason`: the rule that forbids it
        httpx_safe_retry.uncertain_write    `stop_reason`, `replay_safe`, `attempts`

    Each of them has method and server as above, and `request_id`, which tells the requests of one
    span apart. The first two have `attempt` (the number of the one that failed), `reason` in words,
    `error.type` (the error's class, or the status) and `http.response.status_code`.

    Nothing of a URL but server and port is recorded, nothing of a header.

    Raises `TypeError` or `ValueError` for a `max_servers` that is not an int of 0 or more.
    """
    check_integer("max_servers", max_servers, least=0)
    return _Telemetry(metrics.get_meter(_NAME, meter_provider=meter_provider), max_servers)


class _Request(Protocol):
    # The instrumentation's RequestInfo; an httpx.Request has it, too.
    @property
    def extensions(self) -> Mapping[str, Any] | None: ...


def request_hook(span: trace.Span, request: _Request) -> None:
    """Set `http.request.resend_count` on the span of a retry: 1 for the first.

    For `opentelemetry-instrumentation-httpx`, which makes that span and lets nobody else near it:

        HTTPXClientInstrumentor().instrument(
            request_hook=request_hook, async_request_hook=async_request_hook
        )

    The spans must be made inside the `RetryTransport`, one for each attempt. That is so with
    `instrument()`, with `SyncOpenTelemetryTransport` or `AsyncOpenTelemetryTransport` as what it
    wraps, and with `instrument_client(client)` before `wrap_client(client)`. With
    `instrument_client` after it, one span is around all attempts, and none of them has a number.
    Where an agent (`opentelemetry-instrument`) called `instrument()` before your code ran, call
    `HTTPXClientInstrumentor().uninstrument()` first.

    For httpx2, it is `HTTPX2ClientInstrumentor`, `SyncOpenTelemetryTransportHttpx2` and
    `AsyncOpenTelemetryTransportHttpx2`.

    A hook of your own can call this one. A redirect is a request of its own, and counts anew. So
    does one that is sent out of an attempt to somewhere else, over a `RetryTransport`; a transport
    of your own that does that over a plain one must not hand its request's `retry_attempt` on.
    """
    number = (request.extensions or {}).get("retry_attempt")
    if isinstance(number, int):
        span.set_attribute("http.request.resend_count", number - 1)


async def async_request_hook(span: trace.Span, request: _Request) -> None:
    """Do the same for async clients: the instrumentation awaits their hooks."""
    request_hook(span, request)


class _Telemetry:
    """The listener."""

    def __init__(self, meter: metrics.Meter, max_servers: int) -> None:
        self._max_servers = max_servers
        self._servers: set[str] = set()
        self._attempts = meter.create_histogram(
            f"{_NAME}.request.attempts",
            unit="{attempt}",
            description="Attempts of a logical request, the first one included.",
            explicit_bucket_boundaries_advisory=[0, 1, 2, 3, 4, 5, 7, 10],
        )
        self._outcomes = meter.create_counter(
            f"{_NAME}.request.outcomes",
            unit="{request}",
            description="Logical requests by how they ended.",
        )
        self._slept = meter.create_histogram(
            f"{_NAME}.request.slept",
            unit="s",
            description="Time that a logical request spent waiting between its attempts.",
            explicit_bucket_boundaries_advisory=[
                *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
            ],
        )
        self._uncertain = meter.create_counter(
            f"{_NAME}.uncertain_writes",
            unit="{request}",
            description="Writes of which nobody knows whether they happened.",
        )

    def __call__(self, event: RetryEvent) -> None:
        if event.passive:
            return
        match event:
            case RetryScheduled(attempt=attempt):
                _add_event(
                    "retry_scheduled",
                    event,
                    {
                        **_failure(attempt),
                        "max_attempts": event.max_attempts,
                        "delay": event.delay,
                        "delay_source": event.source.value,
                    },
                )
            case RetryRefused(attempt=attempt):
                _add_event(
                    "retry_refused",
                    event,
                    {**_failure(attempt), "stop_reason": event.stop_reason.value},
                )
            case RequestFinished(report=report):
                self._finished(event, report)
            case _:
                pass

    def _finished(self, event: RequestFinished, report: RetryReport) -> None:
        attributes = self._bounded(_whereto(event))
        stop_reason = {"stop_reason": report.stop_reason.value}
        self._attempts.record(len(report.attempts), attributes)
        self._outcomes.add(1, {**attributes, **stop_reason, "outcome": report.outcome.value})
        if report.slept:
            self._slept.record(report.slept, attributes)
        if report.outcome is Outcome.UNCERTAIN_WRITE:
            facts: _Attributes = {**stop_reason, "replay_safe": report.replay_safe}
            self._uncertain.add(1, {**attributes, **facts})
            _add_event("uncertain_write", event, {**facts, "attempts": len(report.attempts)})

    def _bounded(self, attributes: _Attributes) -> _Attributes:
        server = f"{attributes['server.address']} {attributes.get('server.port')}"
        if server not in self._servers:
            # Threads that come here at once may let in one more each. No lock is worth that.
            if len(self._servers) >= self._max_servers:
                return {
                    "http.request.method": attributes["http.request.method"],
                    "server.address": _OTHER,
                }
            self._servers.add(server)
        return attributes


def _add_event(name: str, event: RetryEvent, facts: _Attributes) -> None:
    span = trace.get_current_span()
    if span.is_recording():
        attributes = {**_whereto(event), **facts, "request_id": event.request_id}
        span.add_event(f"{_NAME}.{name}", attributes)


def _whereto(event: RetryEvent) -> _Attributes:
    url = urlsplit(event.url)
    attributes: _Attributes = {
        "http.request.method": event.method if event.method in _METHODS else _OTHER,
        "server.address": url.hostname or "",
    }
    # httpx leaves a scheme's default port out of its URLs.
    if url.port is not None:
        attributes["server.port"] = url.port
    return attributes


def _failure(attempt: Attempt) -> _Attributes:
    facts: _Attributes = {"attempt": attempt.number, "reason": attempt.reason}
    if attempt.status is not None:
        facts["error.type"] = str(attempt.status)
        facts["http.response.status_code"] = attempt.status
    if attempt.error_type is not None:
        facts["error.type"] = attempt.error_type
    return facts
