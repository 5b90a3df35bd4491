"""How it fits in: any wrapped transport, policies from anywhere, and the life of the transport."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import anyio
import pytest

from httpx_safe_retry import (
    Outcome,
    RetryBudget,
    RetryPolicy,
    StopReason,
    get_report,
    raise_for_outcome,
)
from httpx_safe_retry.testing import LoopbackServer, Reply, VirtualClock
from tests.drive import POLICY, SYNC, URL, Drive, everywhere
from tests.library import NAME, RetryTransport, ScriptedTransport, httpx

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


class SyncOnly(httpx.BaseTransport):
    """A transport of somebody's own, for threads."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = iter(statuses)
        self.bodies: list[bytes] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(request.read())
        return httpx.Response(next(self.statuses), text="from a thread")


class AsyncOnly(httpx.AsyncBaseTransport):
    """The same for tasks."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = iter(statuses)
        self.bodies: list[bytes] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(await request.aread())
        return httpx.Response(next(self.statuses), text="from a task")


class LooksLikeOne:
    """No subclass of httpx's, but as good."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = iter(statuses)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(next(self.statuses))

    def close(self) -> None:
        pass


def retrying(wrapped: Any, **arguments: Any) -> RetryTransport:
    """A layer around it that waits in virtual time."""
    return RetryTransport(wrapped, policy=POLICY, clock=VirtualClock(), **arguments)


def get(transport: RetryTransport, **request: Any) -> httpx.Response:
    """Send one request through a client in a thread."""
    with httpx.Client(transport=transport) as client:
        return client.request(request.pop("method", "GET"), URL, **request)


def aget(transport: RetryTransport, backend: str, **request: Any) -> httpx.Response:
    """Send one request through a client in a task."""

    async def main() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.request(request.pop("method", "GET"), URL, **request)

    return anyio.run(main, backend=backend)


# --- what can be wrapped


def test_a_custom_transport_for_threads_retries() -> None:
    wrapped = SyncOnly(503, 200)
    response = get(retrying(wrapped), method="PUT", content=iter([b"1", b"2"]))
    assert (response.status_code, response.text) == (200, "from a thread")
    assert wrapped.bodies == [b"12", b"12"]


@BACKENDS
def test_a_custom_transport_for_tasks_retries(backend: str) -> None:
    async def chunks() -> Any:
        yield b"1"
        yield b"2"

    wrapped = AsyncOnly(503, 200)
    response = aget(retrying(wrapped), backend, method="PUT", content=chunks())
    assert (response.status_code, response.text) == (200, "from a task")
    assert wrapped.bodies == [b"12", b"12"]


def test_what_only_looks_like_a_transport_is_as_good() -> None:
    response = retrying(LooksLikeOne(503, 200)).handle_request(httpx.Request("GET", URL))
    assert response.status_code == 200


@everywhere
def test_a_mock_transport_retries(drive: Drive) -> None:
    statuses = iter([503, 200])
    wrapped = httpx.MockTransport(lambda request: httpx.Response(next(statuses), json={"a": 1}))
    if drive.backend is None:
        response = get(retrying(wrapped))
    else:
        response = aget(retrying(wrapped), drive.backend)
    assert response.json() == {"a": 1}
    assert len(get_report(response).attempts) == 2


@everywhere
def test_a_mock_that_answers_with_one_and_the_same_response_can_be_retried(drive: Drive) -> None:
    constant = httpx.Response(503, json={"error": "busy"})
    wrapped = httpx.MockTransport(lambda request: constant)
    if drive.backend is None:
        response = get(retrying(wrapped))
    else:
        response = aget(retrying(wrapped), drive.backend)
    assert response.json() == {"error": "busy"}
    assert get_report(response).stop_reason is StopReason.MAX_ATTEMPTS


@BACKENDS
def test_an_asgi_app_is_asked_again(backend: str) -> None:
    statuses = iter([503, 200])
    bodies: list[bytes] = []

    async def app(
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        bodies.append(body)
        await send({"type": "http.response.start", "status": next(statuses), "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    response = aget(retrying(httpx.ASGITransport(app)), backend, method="PUT", content=b"12")
    assert (response.status_code, response.text) == (200, "done")
    assert bodies == [b"12", b"12"]


def test_a_wsgi_app_is_asked_again() -> None:
    statuses = iter(["503 Busy", "200 OK"])
    bodies: list[bytes] = []

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        bodies.append(environ["wsgi.input"].read())
        start_response(next(statuses), [])
        return [b"do", b"ne"]

    response = get(retrying(httpx.WSGITransport(app)), method="PUT", content=iter([b"1", b"2"]))
    assert (response.status_code, response.text) == (200, "done")
    assert bodies == [b"12", b"12"]


@BACKENDS
def test_a_transport_for_threads_under_an_async_client_is_a_clear_error(backend: str) -> None:
    with pytest.raises(TypeError, match=r"a sync transport \(SyncOnly\).*AsyncHTTPTransport"):
        aget(retrying(SyncOnly(200)), backend)


def test_a_transport_for_tasks_under_a_client_is_a_clear_error() -> None:
    with pytest.raises(
        TypeError, match=rf"an async transport \(AsyncOnly\).*{NAME}\.HTTPTransport"
    ):
        get(retrying(AsyncOnly(200)))


# --- policies


@everywhere
def test_another_policy_holds_for_one_request(drive: Drive) -> None:
    other = POLICY.replace(max_attempts=2)
    sent = drive.send(503, 503, extensions={"retry": other})
    assert (len(sent.requests), sent.report.max_attempts) == (2, 2)


@everywhere
def test_single_fields_are_overridden_for_one_request(drive: Drive) -> None:
    sent = drive.send(503, extensions={"retry": {"max_attempts": 1}})
    assert (len(sent.requests), sent.report.stop_reason) == (1, StopReason.MAX_ATTEMPTS)
    both = drive.send(503, extensions={"retry": {"max_attempts": 2, "deadline": 0.5}})
    assert (both.report.deadline, both.report.stop_reason) == (0.5, StopReason.DEADLINE)


@everywhere
def test_an_empty_override_changes_nothing(drive: Drive) -> None:
    assert len(drive.send(503, 503, 200, extensions={"retry": {}}).requests) == 3


@everywhere
@pytest.mark.parametrize("failure", [503, httpx.ConnectError])
def test_none_turns_retries_off_for_one_request(drive: Drive, failure: Any) -> None:
    policy = POLICY.replace(deadline=5, raise_on_failure=False)
    sent = drive.send(failure, policy=policy, extensions={"retry": None}, timeout=None)
    assert len(sent.requests) == 1
    assert (sent.report.stop_reason, sent.report.max_attempts) == (StopReason.DISABLED, 1)
    assert sent.requests[0].timeouts["read"] is None


def test_an_override_holds_for_its_request_alone() -> None:
    script = ScriptedTransport(503, 503, 503, 503)
    client = httpx.Client(transport=retrying(script))
    assert client.get(URL, extensions={"retry": {"max_attempts": 1}}).status_code == 503
    assert len(script.requests) == 1
    assert client.get(URL).status_code == 503
    assert len(script.requests) == 4


@everywhere
@pytest.mark.parametrize(
    ("override", "error", "words"),
    [
        ({"max_atempts": 1}, TypeError, "'max_atempts'; the fields are max_attempts, deadline"),
        ({"max_attempts": 0}, ValueError, "max_attempts must be at least 1"),
        ({"max_attempts": "2"}, TypeError, "max_attempts must be an int"),
        ({"deadline": float("nan")}, ValueError, "deadline must be a finite number"),
        ({"cancel": "now"}, TypeError, "cancel must be a threading.Event"),
        (3, TypeError, r'extensions\["retry"\] must be a RetryPolicy, a mapping'),
        (False, TypeError, r'extensions\["retry"\] must be a RetryPolicy, a mapping'),
    ],
)
def test_a_bad_override_is_refused_by_name_before_anything_is_sent(
    drive: Drive, override: Any, error: type[Exception], words: str
) -> None:
    sent = drive.send(200, extensions={"retry": override}, listen=True)
    with pytest.raises(error, match=words):
        raise sent.error
    assert (sent.requests, sent.events) == ([], [])


@everywhere
def test_a_policy_may_be_chosen_by_the_request(drive: Drive) -> None:
    def choose(request: httpx.Request) -> RetryPolicy:
        return POLICY.replace(max_attempts=2 if request.url.path == "/two" else 4)

    two = drive.send(*[503] * 2, url="https://example.org/two", policy=choose)
    four = drive.send(*[503] * 4, url="https://example.org/four", policy=choose)
    assert (len(two.requests), len(four.requests)) == (2, 4)
    overridden = drive.send(
        503, url="https://example.org/two", policy=choose, extensions={"retry": {"max_attempts": 1}}
    )
    assert len(overridden.requests) == 1


@everywhere
def test_a_callable_that_returns_no_policy_is_refused_before_anything_is_sent(drive: Drive) -> None:
    def choose(request: httpx.Request) -> Any:
        return {"max_attempts": 2}

    sent = drive.send(200, policy=choose)
    with pytest.raises(TypeError, match="policy must return a RetryPolicy"):
        raise sent.error
    assert sent.requests == []


@everywhere
def test_an_error_of_the_callable_reaches_the_caller_and_nothing_is_sent(drive: Drive) -> None:
    raised = LookupError("no policy")

    def choose(request: httpx.Request) -> RetryPolicy:
        raise raised

    sent = drive.send(200, policy=choose)
    assert (sent.error, sent.requests) == (raised, [])


# --- a budget of somebody's own


@everywhere
def test_a_budget_is_told_of_each_request_once_and_asked_for_each_retry(drive: Drive) -> None:
    class Counting:
        def __init__(self) -> None:
            self.calls: list[tuple[str, Any]] = []

        def deposit(self, origin: Any) -> None:
            self.calls.append(("deposit", origin))

        def withdraw(self, origin: Any) -> bool:
            self.calls.append(("withdraw", origin))
            return True

    budget = Counting()
    drive.send(503, 503, 200, budget=budget, url="https://example.org:8443/path")
    origin = ("https", "example.org", 8443)
    assert budget.calls == [("deposit", origin), ("withdraw", origin), ("withdraw", origin)]


@everywhere
def test_no_token_is_taken_for_what_another_rule_forbids(drive: Drive) -> None:
    budget = RetryBudget(ratio=0, capacity=10)
    for policy in (POLICY.replace(max_attempts=1), POLICY.replace(deadline=0.1)):
        drive.send(503, policy=policy, budget=budget)
    drive.send(503, method="POST", budget=budget)
    drive.send(404, budget=budget)
    assert budget.tokens(("https", "example.org", None)) == 10


@everywhere
def test_an_error_of_the_budget_leaves_no_response_open_and_hides_no_write(drive: Drive) -> None:
    class Broken:
        def deposit(self, origin: Any) -> None:
            pass

        def withdraw(self, origin: Any) -> bool:
            raise LookupError("the budget's own fault")

    sent = drive.send(503, method="PUT", budget=Broken(), listen=True)
    assert type(sent.error) is LookupError
    assert sent.report.outcome is Outcome.UNCERTAIN_WRITE


# --- the life of a transport


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The TLS contexts that are made: to fill one with trusted certificates takes its time."""
    made: list[object] = []
    new: Any = ssl.SSLContext.__new__

    def counted(cls: type[ssl.SSLContext], *arguments: Any, **named: Any) -> ssl.SSLContext:
        context: ssl.SSLContext = new(cls, *arguments, **named)
        made.append(context)
        return context

    monkeypatch.setattr(ssl.SSLContext, "__new__", counted)
    return made


def test_a_transport_that_is_made_builds_no_tls_context(contexts: list[object]) -> None:
    transport = RetryTransport()
    with httpx.Client(transport=transport, mounts={"all://": None}):
        assert contexts == []
    transport.close()
    assert contexts == []
    httpx.HTTPTransport()
    assert contexts


def test_the_first_request_builds_httpx_own_transport_and_the_next_uses_it() -> None:
    with LoopbackServer(503, 200, 200) as server, RetryTransport() as transport:
        client = httpx.Client(transport=transport)
        for _ in range(2):
            assert client.get(server.url).status_code == 200
        assert server.connections == 1


@BACKENDS
def test_the_first_request_of_a_task_builds_httpx_own_async_transport(backend: str) -> None:
    async def main(url: str) -> list[int]:
        async with httpx.AsyncClient(transport=RetryTransport()) as client:
            return [(await client.get(url)).status_code for _ in range(2)]

    with LoopbackServer(503, 200, 200) as server:
        assert anyio.run(main, server.url, backend=backend) == [200, 200]
        assert server.connections == 1


@pytest.mark.parametrize("name", ["HTTPTransport", "AsyncHTTPTransport"])
def test_threads_that_come_first_together_build_one_transport(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[object] = []

    class Slow(ScriptedTransport):
        def __init__(self) -> None:
            super().__init__(200, 200)
            built.append(self)
            time.sleep(0.1)  # in which the others come and find none

    monkeypatch.setattr(httpx, name, Slow)
    transport = RetryTransport()
    together = threading.Barrier(2)

    async def asend() -> None:
        await transport.handle_async_request(httpx.Request("GET", URL))

    def send() -> None:
        together.wait(10)
        if name == "HTTPTransport":
            transport.handle_request(httpx.Request("GET", URL))
        else:
            anyio.run(asend)

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1


def test_a_client_enters_leaves_and_closes_what_is_wrapped() -> None:
    order: list[str] = []

    class Noted(ScriptedTransport):
        def __enter__(self) -> Any:
            order.append("enter")
            return self

        def __exit__(self, *arguments: Any) -> None:
            order.append("exit")

    with httpx.Client(transport=RetryTransport(Noted(200))) as client:
        client.get(URL)
    assert order == ["enter", "exit"]
    wrapped = ScriptedTransport()
    httpx.Client(transport=RetryTransport(wrapped)).close()
    assert wrapped.closes == 1


@BACKENDS
def test_an_async_client_enters_leaves_and_closes_what_is_wrapped(backend: str) -> None:
    order: list[str] = []

    class Noted(ScriptedTransport):
        async def __aenter__(self) -> Any:
            order.append("enter")
            return self

        async def __aexit__(self, *arguments: Any) -> None:
            order.append("exit")

    wrapped = ScriptedTransport()

    async def main() -> None:
        async with httpx.AsyncClient(transport=RetryTransport(Noted(200))) as client:
            await client.get(URL)
        await httpx.AsyncClient(transport=RetryTransport(wrapped)).aclose()
        # Nothing was built, so that there is nothing to enter or to close.
        async with RetryTransport() as transport:
            await transport.aclose()

    anyio.run(main, backend=backend)
    assert (order, wrapped.closes) == (["enter", "exit"], 1)


def test_a_default_transport_that_was_never_used_has_nothing_to_enter_or_to_close() -> None:
    with RetryTransport() as transport:
        transport.close()


def test_the_callers_trace_still_sees_every_event_of_a_write() -> None:
    names: list[str] = []

    def trace(name: str, info: Any) -> None:
        names.append(name)

    with LoopbackServer(201) as server, httpx.Client(transport=RetryTransport()) as client:
        client.post(server.url, content=b"pay", extensions={"trace": trace})
    assert "http11.send_request_headers.complete" in names


def test_errors_of_the_client_itself_are_none_of_ours() -> None:
    redirect = Reply(status=302, headers={"Location": "/a"})
    client = httpx.Client(transport=retrying(ScriptedTransport(redirect)), max_redirects=0)
    with pytest.raises(httpx.TooManyRedirects) as caught:
        client.get(URL, follow_redirects=True)
    assert type(caught.value) is httpx.TooManyRedirects
    response = SYNC.send(200).response
    assert raise_for_outcome(response) is response


class LookAlike:
    """A request of nobody's family."""

    def __init__(self, request: httpx.Request) -> None:
        vars(self).update(vars(request))


@pytest.mark.parametrize("policy", [POLICY, POLICY.replace(deadline=5.0)])
def test_a_request_that_only_looks_like_one_is_sent(policy: RetryPolicy) -> None:
    script = ScriptedTransport(503, 200)
    transport = RetryTransport(script, policy=policy, clock=VirtualClock())
    request: Any = LookAlike(httpx.Request("PUT", URL, content=b"12345"))
    assert transport.handle_request(request).status_code == 200
    assert [sent.body for sent in script.requests] == [b"12345"] * 2
