"""What OpenTelemetry is told: bounded metrics, events on the caller's span, and one span for each
attempt that knows its number, however the instrumentation is put beside this library.
"""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import anyio
import opentelemetry.instrumentation.httpx as instrumentation
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import use_span

import httpx_safe_retry.opentelemetry
from httpx_safe_retry import Backoff, RetryPolicy, UncertainWriteError
from httpx_safe_retry.opentelemetry import (
    async_request_hook,
    opentelemetry_listener,
    request_hook,
)
from httpx_safe_retry.testing import (
    Fault,
    LoopbackServer,
    Reply,
    ScriptItem,
    ServerRequest,
    ServerResponse,
    VirtualClock,
)
from tests.drive import KEY, POLICY, SYNC, URL, Drive, Sent, everywhere
from tests.library import NAME, RetryTransport, ScriptedTransport, httpx, wrap_client

ATTEMPTS = "httpx_safe_retry.request.attempts"
OUTCOMES = "httpx_safe_retry.request.outcomes"
SLEPT = "httpx_safe_retry.request.slept"
UNCERTAIN = "httpx_safe_retry.uncertain_writes"

PLACE = {"http.request.method": "GET", "server.address": "example.org"}


@dataclass
class Telemetry:
    """An SDK that keeps in memory what it is told."""

    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def __post_init__(self) -> None:
        self.meter_provider = MeterProvider([self.reader])
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.listener = opentelemetry_listener(meter_provider=self.meter_provider)

    def send(
        self,
        drive: Drive,
        *script: ScriptItem,
        method: str = "GET",
        url: str = URL,
        policy: RetryPolicy = POLICY,
        **request: Any,
    ) -> Sent:
        """Send one request within a span."""
        clock = VirtualClock()
        sent = Sent(ScriptedTransport(*script, clock=clock), clock)
        transport = RetryTransport(
            sent.script, policy=policy, clock=clock, listeners=[self.listener]
        )
        with self.callers_span():
            drive.through(transport, sent, method, url, **request)
        return sent

    @contextmanager
    def callers_span(self) -> Iterator[None]:
        """Be in the span of a caller."""
        with self.tracer_provider.get_tracer("tests").start_as_current_span("caller"):
            yield

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics by name."""
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        (resource,) = data.resource_metrics
        (scope,) = resource.scope_metrics
        assert scope.scope.name == "httpx_safe_retry"
        return {metric.name: metric for metric in scope.metrics}

    def counts(self, name: str) -> list[tuple[dict[str, Any], int | float]]:
        """What a counter holds: attributes and value."""
        if name not in self.metrics:
            return []
        return [(dict(p.attributes), p.value) for p in self.metrics[name].data.data_points]

    def sums(self, name: str) -> list[tuple[dict[str, Any], int, float]]:
        """What a histogram holds: attributes, count and sum."""
        if name not in self.metrics:
            return []
        return [(dict(p.attributes), p.count, p.sum) for p in self.metrics[name].data.data_points]

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """The spans in the order in which they ended."""
        return self.exporter.get_finished_spans()

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """The events on the caller's span, without what changes from run to run."""
        (caller,) = (span for span in self.spans if span.name == "caller")
        events = [
            (event.name.removeprefix("httpx_safe_retry."), dict(event.attributes or {}))
            for event in caller.events
            if event.name.startswith("httpx_safe_retry.")
        ]
        # Plain values: exporters don't agree on what to make of an enum's member.
        kinds = {type(value) for _, attributes in events for value in attributes.values()}
        assert kinds <= {str, bool, int, float}
        ids = {attributes.pop("request_id") for _, attributes in events}
        assert len(ids) == bool(events)
        return events


# --- metrics


@everywhere
def test_the_attempts_of_each_request_are_recorded(drive: Drive) -> None:
    telemetry = Telemetry()
    telemetry.send(drive, 200)
    telemetry.send(drive, 503, 503, 200)
    assert telemetry.sums(ATTEMPTS) == [(PLACE, 2, 4)]
    (point,) = telemetry.metrics[ATTEMPTS].data.data_points
    counted = [
        bound
        for bound, count in zip(point.explicit_bounds, point.bucket_counts, strict=False)
        if count
    ]
    assert counted == [1, 3]


@everywhere
@pytest.mark.parametrize(
    ("script", "method", "policy", "outcome", "stop_reason"),
    [
        ([200], "GET", POLICY, "success", "done"),
        ([404], "GET", POLICY, "permanent_failure", "not_transient"),
        ([503, 503, 503], "GET", POLICY, "exhausted", "max_attempts"),
        ([503], "GET", POLICY.replace(deadline=0.5), "deadline_exceeded", "deadline"),
        ([httpx.ReadTimeout], "POST", POLICY, "uncertain_write", "not_replay_safe"),
        ([KeyboardInterrupt], "GET", POLICY, "cancelled", "cancelled"),
    ],
)
def test_each_request_is_counted_by_how_it_ended(
    drive: Drive,
    script: list[ScriptItem],
    method: str,
    policy: RetryPolicy,
    outcome: str,
    stop_reason: str,
) -> None:
    telemetry = Telemetry()
    telemetry.send(drive, *script, method=method, policy=policy)
    place = {**PLACE, "http.request.method": method}
    assert telemetry.counts(OUTCOMES) == [
        ({**place, "outcome": outcome, "stop_reason": stop_reason}, 1)
    ]
    for attributes, _ in telemetry.counts(OUTCOMES):
        assert type(attributes["outcome"]) is type(attributes["stop_reason"]) is str


@everywhere
def test_time_between_attempts_is_recorded_where_some_was_spent(drive: Drive) -> None:
    telemetry = Telemetry()
    telemetry.send(drive, 200)
    assert telemetry.sums(SLEPT) == []
    sent = telemetry.send(drive, 503, Reply(status=429, headers={"Retry-After": "7"}), 200)
    assert telemetry.sums(SLEPT) == [(PLACE, 1, 8.0)]
    assert sent.waits == [1.0, 7.0]


@everywhere
@pytest.mark.parametrize("keyed", [True, False])
def test_uncertain_writes_are_counted_by_whether_sending_them_again_is_safe(
    drive: Drive, keyed: bool
) -> None:
    telemetry = Telemetry()
    lost = [httpx.ReadTimeout] * 3
    telemetry.send(drive, *lost, method="POST", headers=KEY if keyed else {})
    telemetry.send(drive, *lost)
    telemetry.send(drive, httpx.ConnectError, 201, method="POST")
    facts = {"stop_reason": "max_attempts" if keyed else "not_replay_safe", "replay_safe": keyed}
    place = {**PLACE, "http.request.method": "POST"}
    assert telemetry.counts(UNCERTAIN) == [({**place, **facts}, 1)]


def test_the_metrics_say_what_they_are() -> None:
    telemetry = Telemetry()
    telemetry.send(SYNC, 503, httpx.ReadTimeout, 503, method="PUT")
    units = {name: metric.unit for name, metric in telemetry.metrics.items()}
    assert units == {
        ATTEMPTS: "{attempt}",
        OUTCOMES: "{request}",
        SLEPT: "s",
        UNCERTAIN: "{request}",
    }
    assert all(metric.description for metric in telemetry.metrics.values())
    (slept,) = telemetry.metrics[SLEPT].data.data_points
    assert (slept.explicit_bounds[0], slept.explicit_bounds[-1]) == (0.01, 60)


# --- bounds


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("https://Example.org/a?b=c", {"server.address": "example.org"}),
        ("https://example.org:443/", {"server.address": "example.org"}),
        ("http://example.org:80/", {"server.address": "example.org"}),
        ("http://example.org:443/", {"server.address": "example.org", "server.port": 443}),
        ("http://[2001:db8::1]:8080/", {"server.address": "2001:db8::1", "server.port": 8080}),
        ("https://[::1]/", {"server.address": "::1"}),
        ("https://bücher.example/", {"server.address": "xn--bcher-kva.example"}),
        ("https://user:pw@10.0.0.1:8443/", {"server.address": "10.0.0.1", "server.port": 8443}),
        ("unix:/run/service", {"server.address": ""}),
    ],
)
def test_a_server_is_its_address_and_a_port_that_is_not_the_default(
    url: str, server: dict[str, Any]
) -> None:
    telemetry = Telemetry()
    transport = RetryTransport(ScriptedTransport(200), listeners=[telemetry.listener])
    transport.handle_request(httpx.Request("GET", url))
    assert telemetry.sums(ATTEMPTS) == [({"http.request.method": "GET", **server}, 1, 1)]


def test_methods_that_the_conventions_do_not_know_are_one() -> None:
    telemetry = Telemetry()
    known = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"]
    for method in (*known, "QUERY", "PURGE", "X" * 99, "get"):
        telemetry.send(SYNC, 200, method=method)
    methods = {
        attributes["http.request.method"]: count
        for attributes, count, _ in telemetry.sums(ATTEMPTS)
    }
    assert methods == {**dict.fromkeys([*known, "QUERY"], 1), "GET": 2, "_OTHER": 2}


@pytest.mark.parametrize("most", [0, 2])
def test_servers_past_the_first_ones_are_one(most: int) -> None:
    telemetry = Telemetry()
    telemetry.listener = opentelemetry_listener(
        meter_provider=telemetry.meter_provider, max_servers=most
    )
    for host in ("a.example", "a.example:1", "b.example", "c.example:2", "a.example"):
        telemetry.send(SYNC, 200, url=f"https://{host}/")
    servers = {
        (attributes["server.address"], attributes.get("server.port")): count
        for attributes, count in telemetry.counts(OUTCOMES)
    }
    if most:
        assert servers == {("a.example", None): 2, ("a.example", 1): 1, ("_OTHER", None): 2}
    else:
        assert servers == {("_OTHER", None): 5}
    assert {a["http.request.method"] for a, _ in telemetry.counts(OUTCOMES)} == {"GET"}


def test_a_hundred_servers_are_told_apart() -> None:
    telemetry = Telemetry()
    for number in range(103):
        telemetry.send(SYNC, 200, url=f"https://{number}.example/")
    assert len(telemetry.sums(ATTEMPTS)) == 101


@pytest.mark.parametrize(
    ("most", "error"), [(-1, ValueError), (1.5, TypeError), (None, TypeError), (True, TypeError)]
)
def test_a_bad_limit_is_refused_by_name(most: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="max_servers must be"):
        opentelemetry_listener(max_servers=most)


# --- events on the span


@everywhere
def test_a_scheduled_retry_is_an_event_on_the_callers_span(drive: Drive) -> None:
    telemetry = Telemetry()
    telemetry.send(
        drive, Reply(status=429, headers={"Retry-After": "7"}), httpx.ConnectTimeout, 200
    )
    assert telemetry.events == [
        (
            "retry_scheduled",
            {
                **PLACE,
                "attempt": 1,
                "max_attempts": 3,
                "delay": 7.0,
                "delay_source": "retry-after",
                "reason": "answered 429 Too Many Requests",
                "error.type": "429",
                "http.response.status_code": 429,
            },
        ),
        (
            "retry_scheduled",
            {
                **PLACE,
                "attempt": 2,
                "max_attempts": 3,
                "delay": 2.0,
                "delay_source": "backoff",
                "reason": "ConnectTimeout",
                "error.type": "ConnectTimeout",
            },
        ),
    ]


@everywhere
def test_a_refused_retry_is_an_event_with_the_rule_that_forbids_it(drive: Drive) -> None:
    telemetry = Telemetry()
    telemetry.send(drive, 503, policy=POLICY.replace(max_attempts=1))
    ((name, attributes),) = telemetry.events
    assert name == "retry_refused"
    assert attributes.pop("reason")
    assert attributes == {
        **PLACE,
        "attempt": 1,
        "stop_reason": "max_attempts",
        "error.type": "503",
        "http.response.status_code": 503,
    }


@everywhere
def test_an_uncertain_write_is_an_event(drive: Drive) -> None:
    telemetry = Telemetry()
    telemetry.send(drive, httpx.ConnectError, httpx.ReadTimeout, method="POST")
    assert [name for name, _ in telemetry.events] == [
        "retry_scheduled",
        "retry_refused",
        "uncertain_write",
    ]
    assert telemetry.events[-1][1] == {
        **PLACE,
        "http.request.method": "POST",
        "stop_reason": "not_replay_safe",
        "replay_safe": False,
        "attempts": 2,
    }


@everywhere
def test_an_answer_whose_body_is_lost_is_told_with_its_status_and_the_error(drive: Drive) -> None:
    telemetry = Telemetry()
    telemetry.send(
        drive, Reply(headers={"Content-Length": "8"}, body=[b"half", httpx.ReadError]), 200
    )
    ((_, attributes),) = telemetry.events
    assert attributes["error.type"] == "ReadError"
    assert attributes["http.response.status_code"] == 200


@everywhere
def test_what_goes_well_leaves_no_event(drive: Drive) -> None:
    telemetry = Telemetry()
    telemetry.send(drive, 200)
    assert telemetry.events == []


def test_the_requests_of_one_span_are_told_apart() -> None:
    telemetry = Telemetry()
    wrapped = ScriptedTransport(503, 503, 503, 503)
    policy = RetryPolicy(max_attempts=2, backoff=Backoff(base=0))
    transport = RetryTransport(wrapped, policy=policy, listeners=[telemetry.listener])
    with telemetry.callers_span(), httpx.Client(transport=transport) as client:
        client.get(URL)
        client.get(URL)
    (caller,) = telemetry.spans
    numbers = [(event.attributes or {})["request_id"] for event in caller.events]
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3]


def test_without_a_span_around_it_nothing_is_missing_but_the_events() -> None:
    telemetry = Telemetry()
    transport = RetryTransport(
        ScriptedTransport(503, 200), clock=VirtualClock(), listeners=[telemetry.listener]
    )
    transport.handle_request(httpx.Request("GET", URL))
    assert telemetry.sums(ATTEMPTS) == [(PLACE, 1, 2)]
    assert telemetry.spans == ()


def test_a_span_that_is_over_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    over = telemetry.tracer_provider.get_tracer("tests").start_span("over")
    over.end()
    transport = RetryTransport(
        ScriptedTransport(503, 200), clock=VirtualClock(), listeners=[telemetry.listener]
    )
    with use_span(over):
        transport.handle_request(httpx.Request("GET", URL))
    # The SDK would warn of each event that comes too late.
    assert caplog.messages == []


@everywhere
def test_a_request_through_two_layers_is_recorded_once(drive: Drive) -> None:
    telemetry = Telemetry()
    clock = VirtualClock()
    sent = Sent(ScriptedTransport(httpx.ReadTimeout, 200, clock=clock), clock)
    transport: Any = sent.script
    for _ in range(2):
        transport = RetryTransport(
            transport, policy=POLICY, clock=clock, listeners=[telemetry.listener]
        )
    with telemetry.callers_span():
        drive.through(transport, sent, "POST", headers=KEY)
    place = {**PLACE, "http.request.method": "POST"}
    assert telemetry.sums(ATTEMPTS) == [(place, 1, 2)]
    assert telemetry.counts(UNCERTAIN) == []
    assert [name for name, _ in telemetry.events] == ["retry_scheduled"]


@pytest.mark.anyio
async def test_an_uncertain_write_of_an_app_behind_the_transport_is_recorded(
    anyio_backend: str,
) -> None:
    telemetry = Telemetry()
    listeners = [telemetry.listener]
    lost = ScriptedTransport(httpx.ReadTimeout)
    payments = httpx.AsyncClient(transport=RetryTransport(lost, listeners=listeners))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        with pytest.raises(UncertainWriteError):
            await payments.post("https://payments.test/charge")
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    transport = RetryTransport(httpx.ASGITransport(app), listeners=listeners)
    async with payments, httpx.AsyncClient(transport=transport) as client:
        assert (await client.post("https://shop.test/orders")).status_code == 202
    (found,) = telemetry.counts(UNCERTAIN)
    assert (found[0]["server.address"], found[1]) == ("payments.test", 1)
    counted = {place["server.address"]: count for place, count, _ in telemetry.sums(ATTEMPTS)}
    assert counted == {"payments.test": 1, "shop.test": 1}


def test_nothing_secret_is_recorded() -> None:
    telemetry = Telemetry()
    quoting = httpx.LocalProtocolError("Illegal header value b'secret-1'")
    for error in (httpx.ReadTimeout("secret-2 secret-3"), quoting, ValueError("secret-4")):
        telemetry.send(
            SYNC,
            503,
            error,
            error,
            method="POST",
            url="https://me:secret-1@example.org/secret-5?token=secret-2#secret-3",
            headers={"Idempotency-Key": "secret-4", "Authorization": "Bearer secret-6"},
            # Or httpx would make the URL's user into another Authorization.
            client={"auth": lambda request: request},
        )
    shown = repr(telemetry.metrics) + "".join(span.to_json() for span in telemetry.spans)
    assert "retry_scheduled" in shown
    assert "secret-" not in shown


# --- the span of each attempt

SUFFIX = {"httpx": "", "httpx2": "Httpx2"}[NAME]
INSTRUMENTOR: Any = getattr(instrumentation, f"{NAME.upper()}ClientInstrumentor")
INSIDE: Any = getattr(instrumentation, f"SyncOpenTelemetryTransport{SUFFIX}")
ASYNC_INSIDE: Any = getattr(instrumentation, f"AsyncOpenTelemetryTransport{SUFFIX}")


def of_both(drive: Drive) -> tuple[Any, Any]:
    """The client's class and the hook that fit a drive."""
    if drive.backend is None:
        return httpx.Client, request_hook
    return httpx.AsyncClient, async_request_hook


@contextmanager
def all_instrumented(telemetry: Telemetry) -> Iterator[None]:
    """`instrument()`, for a while."""
    instrumentor = INSTRUMENTOR()
    instrumentor.instrument(
        tracer_provider=telemetry.tracer_provider,
        meter_provider=telemetry.meter_provider,
        request_hook=request_hook,
        async_request_hook=async_request_hook,
    )
    try:
        yield
    finally:
        instrumentor.uninstrument()


Arrangement = Callable[[Drive, Telemetry, dict[str, Any]], Any]


def instrument_then_build(drive: Drive, telemetry: Telemetry, ours: dict[str, Any]) -> Any:
    return of_both(drive)[0](transport=RetryTransport(**ours))


def instrument_then_wrap(drive: Drive, telemetry: Telemetry, ours: dict[str, Any]) -> Any:
    return wrap_client(of_both(drive)[0](), **ours)


def transport_inside(drive: Drive, telemetry: Telemetry, ours: dict[str, Any]) -> Any:
    client, hook = of_both(drive)
    providers = {"tracer_provider": telemetry.tracer_provider, "request_hook": hook}
    if drive.backend is None:
        inside = INSIDE(httpx.HTTPTransport(), **providers)
    else:
        inside = ASYNC_INSIDE(httpx.AsyncHTTPTransport(), **providers)
    return client(transport=RetryTransport(inside, **ours))


def instrument_client_then_wrap(drive: Drive, telemetry: Telemetry, ours: dict[str, Any]) -> Any:
    kind, hook = of_both(drive)
    client = kind()
    INSTRUMENTOR.instrument_client(
        client, tracer_provider=telemetry.tracer_provider, request_hook=hook
    )
    return wrap_client(client, **ours)


def wrap_then_instrument_client(drive: Drive, telemetry: Telemetry, ours: dict[str, Any]) -> Any:
    kind, hook = of_both(drive)
    client = wrap_client(kind(), **ours)
    INSTRUMENTOR.instrument_client(
        client, tracer_provider=telemetry.tracer_provider, request_hook=hook
    )
    return client


def request_through(
    drive: Drive,
    telemetry: Telemetry,
    arrangement: Arrangement,
    server: LoopbackServer,
    *,
    policy: RetryPolicy = POLICY,
    method: str = "GET",
    **request: Any,
) -> httpx.Response:
    """Send one request over a socket, within a caller's span."""
    ours = {"policy": policy, "clock": VirtualClock(), "listeners": [telemetry.listener]}
    request["follow_redirects"] = True

    async def main() -> httpx.Response:
        async with arrangement(drive, telemetry, ours) as client:
            response: httpx.Response = await client.request(method, server.url, **request)
            return response

    with telemetry.callers_span():
        if drive.backend is not None:
            return anyio.run(main, backend=drive.backend)
        with arrangement(drive, telemetry, ours) as client:
            response: httpx.Response = client.request(method, server.url, **request)
            return response


def traceparents(server: LoopbackServer) -> list[tuple[int, int]]:
    """The trace and the span that each request named to the server."""
    lines = [request.headers["traceparent"].split("-") for request in server.requests]
    return [(int(trace, 16), int(span, 16)) for _, trace, span, _ in lines]


def identities(spans: Sequence[ReadableSpan]) -> list[tuple[int, int]]:
    """The trace and the number of each span."""
    return [(span.context.trace_id, span.context.span_id) for span in spans]


def resends(spans: Sequence[ReadableSpan]) -> list[Any]:
    """The resend count of each span; None where there is none."""
    return [(span.attributes or {}).get("http.request.resend_count") for span in spans]


def url_of(span: ReadableSpan) -> Any:
    """What an attempt was sent to, under the name of the old conventions or the new ones."""
    attributes = span.attributes or {}
    return attributes.get("http.url") or attributes["url.full"]


@everywhere
@pytest.mark.parametrize("deadline", [None, 60.0])
@pytest.mark.parametrize(
    ("arrangement", "everything"),
    [
        (instrument_then_build, True),
        (instrument_then_wrap, True),
        (transport_inside, False),
        (instrument_client_then_wrap, False),
    ],
)
def test_each_attempt_has_a_span_of_its_own_under_the_callers(
    drive: Drive, arrangement: Arrangement, everything: bool, deadline: float | None
) -> None:
    telemetry = Telemetry()
    policy = POLICY.replace(deadline=deadline)
    with LoopbackServer(503, 503, 200) as server:
        if everything:
            with all_instrumented(telemetry):
                response = request_through(drive, telemetry, arrangement, server, policy=policy)
        else:
            response = request_through(drive, telemetry, arrangement, server, policy=policy)
    assert response.status_code == 200
    *attempts, caller = telemetry.spans
    assert [span.name for span in attempts] == ["GET"] * 3
    assert caller.name == "caller"
    assert [span.parent for span in attempts] == [caller.context] * 3
    assert resends(attempts) == [None, 1, 2]
    assert traceparents(server) == identities(attempts)
    assert [name for name, _ in telemetry.events] == ["retry_scheduled"] * 2


@everywhere
def test_a_span_around_all_attempts_has_their_events_and_no_number(drive: Drive) -> None:
    telemetry = Telemetry()
    with LoopbackServer(503, 503, 200) as server:
        request_through(drive, telemetry, wrap_then_instrument_client, server)
    around, caller = telemetry.spans
    assert around.parent == caller.context
    assert resends([around]) == [None]
    assert [event.name for event in around.events] == ["httpx_safe_retry.retry_scheduled"] * 2
    assert traceparents(server) == identities([around] * 3)


@everywhere
def test_a_span_around_all_attempts_can_be_the_parent_of_theirs(drive: Drive) -> None:
    telemetry = Telemetry()
    with LoopbackServer(503, 503, 200) as server, all_instrumented(telemetry):
        request_through(drive, telemetry, wrap_then_instrument_client, server)
    *attempts, around, caller = telemetry.spans
    assert around.parent == caller.context
    assert [span.parent for span in attempts] == [around.context] * 3
    assert resends([*attempts, around]) == [None, 1, 2, None]
    assert traceparents(server) == identities(attempts)


def test_an_agent_that_came_first_can_be_given_the_hooks() -> None:
    telemetry = Telemetry()
    agents = INSTRUMENTOR()
    agents.instrument(tracer_provider=telemetry.tracer_provider)
    with LoopbackServer(503, 200, 503, 200) as server:
        request_through(SYNC, telemetry, instrument_then_wrap, server)
        INSTRUMENTOR().uninstrument()
        with all_instrumented(telemetry):
            request_through(SYNC, telemetry, instrument_then_wrap, server)
    attempts = [span for span in telemetry.spans if span.name == "GET"]
    assert resends(attempts) == [None, None, None, 1]


@everywhere
def test_a_redirect_counts_its_retries_anew(drive: Drive) -> None:
    telemetry = Telemetry()
    elsewhere = ServerResponse(status=307, headers={"Location": "/elsewhere"})
    with LoopbackServer(503, elsewhere, 503, 200) as server, all_instrumented(telemetry):
        request_through(drive, telemetry, instrument_then_wrap, server)
    *attempts, _ = telemetry.spans
    assert resends(attempts) == [None, 1, None, 1]


@everywhere
def test_spans_stay_around_the_attempts_of_a_streamed_body(drive: Drive) -> None:
    telemetry = Telemetry()
    body = drive.body(b"one", b"two")
    with LoopbackServer(503, 200) as server, all_instrumented(telemetry):
        request_through(drive, telemetry, instrument_then_wrap, server, method="PUT", content=body)
    assert [request.body for request in server.requests] == [b"onetwo"] * 2
    *attempts, caller = telemetry.spans
    assert [span.parent for span in attempts] == [caller.context] * 2
    assert resends(attempts) == [None, 1]


@everywhere
def test_an_uncertain_write_marks_its_attempt_and_the_callers_span(drive: Drive) -> None:
    telemetry = Telemetry()
    with (
        LoopbackServer(Fault()) as server,
        all_instrumented(telemetry),
        pytest.raises(UncertainWriteError),
    ):
        request_through(drive, telemetry, instrument_then_build, server, method="POST")
    attempt, _ = telemetry.spans
    assert not attempt.status.is_ok
    assert telemetry.events[-1][0] == "uncertain_write"


def fails_once_for_each_path() -> Callable[[ServerRequest], ServerResponse]:
    """A handler that answers each path with 503 first."""
    seen: set[str] = set()

    def answer(request: ServerRequest) -> ServerResponse:
        if request.path in seen:
            return ServerResponse()
        seen.add(request.path)
        return ServerResponse(status=503)

    return answer


def assert_each_caller_has_its_own(telemetry: Telemetry) -> None:
    """Four callers, each of them with one event, and two attempts that are numbered."""
    callers = [span for span in telemetry.spans if span.name == "caller"]
    assert len(callers) == 4
    for caller in callers:
        attempts = [span for span in telemetry.spans if span.parent == caller.context]
        assert resends(attempts) == [None, 1]
        assert len({url_of(span) for span in attempts}) == 1
        assert [event.name for event in caller.events] == ["httpx_safe_retry.retry_scheduled"]


def test_threads_keep_to_their_own_spans() -> None:
    telemetry = Telemetry()

    def call(url: str) -> None:
        with telemetry.callers_span():
            client.get(url)

    with (
        LoopbackServer(handler=fails_once_for_each_path()) as server,
        all_instrumented(telemetry),
        wrap_client(httpx.Client(), clock=VirtualClock(), listeners=[telemetry.listener]) as client,
    ):
        threads = [threading.Thread(target=call, args=(f"{server.url}/{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert_each_caller_has_its_own(telemetry)


@pytest.mark.anyio
async def test_tasks_keep_to_their_own_spans() -> None:
    telemetry = Telemetry()

    async def call(url: str) -> None:
        with telemetry.callers_span():
            await client.get(url)

    with LoopbackServer(handler=fails_once_for_each_path()) as server, all_instrumented(telemetry):
        client = wrap_client(
            httpx.AsyncClient(), clock=VirtualClock(), listeners=[telemetry.listener]
        )
        async with client, anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(call, f"{server.url}/{number}")
    assert_each_caller_has_its_own(telemetry)


# --- the attempt's number


@everywhere
def test_a_retry_alone_carries_its_number_in_its_extensions(drive: Drive) -> None:
    given = {"custom": 1}
    sent = drive.send(503, 503, 200, extensions=given)
    numbers = [request.extensions.get("retry_attempt") for request in sent.requests]
    assert numbers == [None, 2, 3]
    assert [request.extensions["custom"] for request in sent.requests] == [1, 1, 1]
    assert given == {"custom": 1}
    assert "retry_attempt" not in sent.response.request.extensions


class Span:
    """Keeps what is set on it."""

    def __init__(self) -> None:
        self.attributes: dict[str, object] = {}

    def set_attribute(self, name: str, value: object) -> None:
        self.attributes[name] = value


@pytest.mark.parametrize(
    ("extensions", "attributes"),
    [
        (None, {}),
        ({}, {}),
        ({"retry_attempt": 2}, {"http.request.resend_count": 1}),
        ({"retry_attempt": "what a caller put there"}, {}),
    ],
)
def test_the_hooks_set_what_they_can_and_raise_nothing(
    extensions: Any, attributes: dict[str, Any]
) -> None:
    of_thread: Any = Span()
    of_task: Any = Span()
    request_hook(of_thread, SimpleNamespace(extensions=extensions))
    anyio.run(async_request_hook, of_task, SimpleNamespace(extensions=extensions))
    assert of_thread.attributes == of_task.attributes == attributes


def test_a_hook_takes_a_request_of_httpx_too() -> None:
    span: Any = Span()
    request_hook(span, httpx.Request("GET", URL, extensions={"retry_attempt": 3}))
    assert span.attributes == {"http.request.resend_count": 2}


# --- the module


def run(code: str) -> str:
    """Run it in an interpreter of its own, and return what it prints."""
    command = [sys.executable, "-W", "error", "-c", inspect.cleandoc(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_api_package_is_all_that_it_needs() -> None:
    shown = run(
        """
        import logging, sys
        logging.disable()
        sys.modules["opentelemetry.sdk"] = None
        sys.modules["opentelemetry.instrumentation"] = None
        import httpx
        from httpx_safe_retry import RetryTransport
        from httpx_safe_retry.opentelemetry import opentelemetry_listener
        from httpx_safe_retry.testing import ScriptedTransport, VirtualClock
        listeners = [opentelemetry_listener()]
        script = ScriptedTransport(503, httpx.ReadTimeout, 503)
        transport = RetryTransport(script, clock=VirtualClock(), listeners=listeners)
        print(transport.handle_request(httpx.Request("PUT", "https://example.org/")))
        """
    )
    assert "503" in shown


def test_a_provider_that_is_set_later_gets_the_metrics() -> None:
    shown = run(
        """
        import httpx
        from httpx_safe_retry import RetryTransport
        from httpx_safe_retry.opentelemetry import opentelemetry_listener
        from httpx_safe_retry.testing import ScriptedTransport
        transport = RetryTransport(ScriptedTransport(200), listeners=[opentelemetry_listener()])
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        reader = InMemoryMetricReader()
        metrics.set_meter_provider(MeterProvider([reader]))
        transport.handle_request(httpx.Request("GET", "https://example.org/"))
        print(reader.get_metrics_data().to_json())
        """
    )
    assert "httpx_safe_retry.request.outcomes" in shown


def test_without_the_api_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "httpx_safe_retry.opentelemetry")
    with pytest.raises(ImportError, match="OpenTelemetry") as raised:
        importlib.import_module("httpx_safe_retry.opentelemetry")
    assert "pip install 'httpx-safe-retry[opentelemetry]'" in str(raised.value)
    assert isinstance(raised.value.__cause__, ImportError)


def test_its_text_names_all_that_is_recorded() -> None:
    telemetry = Telemetry()
    telemetry.send(SYNC, 503, httpx.ReadTimeout, 503, method="PUT", url="http://a.example:1/")
    text = opentelemetry_listener.__doc__
    assert text is not None
    names = [*telemetry.metrics, *(f"httpx_safe_retry.{name}" for name, _ in telemetry.events)]
    found = [
        attributes for name in (OUTCOMES, UNCERTAIN) for attributes, _ in telemetry.counts(name)
    ]
    found += [attributes for attributes, *_ in telemetry.sums(ATTEMPTS)]
    found += [attributes for _, attributes in telemetry.events]
    names += [f"`{name}`" for attributes in found for name in attributes]
    assert len(set(names)) == 21
    assert [name for name in names if name not in text] == []


@pytest.mark.parametrize("name", httpx_safe_retry.opentelemetry.__all__)
def test_what_it_offers_is_documented(name: str) -> None:
    member = getattr(httpx_safe_retry.opentelemetry, name)
    assert member.__doc__
    assert member.__module__ == "httpx_safe_retry.opentelemetry"
