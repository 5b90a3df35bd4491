"""`wrap_client` on real sockets: all that the client was built with still holds, and every way out
of it retries.
"""

from __future__ import annotations

import json
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme

from httpx_safe_retry import Evidence, Outcome, RetryEvent, RetryPolicy, StopReason, get_report
from tests.library import NAME, RetryTransport, httpx, wrap_client
from tests.peers import (
    Answer,
    Drop,
    Http1Server,
    Http2Server,
    HttpProxy,
    SocksProxy,
    client_tls,
    server_tls,
)

from .driving import KEY, QUICK, everywhere
from .wrapping import wrapped

NOT_SENT, AMBIGUOUS, EXECUTED = Evidence.NOT_SENT, Evidence.AMBIGUOUS, Evidence.EXECUTED

# The proxy of these tests reads one request per connection, and relays bytes from then on.
LAST = [("Connection", "close")]

# Proxies ------------------------------------------------------------------------------------------


@everywhere
def test_http_goes_through_the_proxy_of_the_argument_on_every_attempt(backend: str | None) -> None:
    with (
        Http1Server([Answer(503, LAST), Answer(200)]) as server,
        HttpProxy() as proxy,
        wrapped(backend, proxy=proxy.url) as client,
    ):
        got = client.send("GET", server.url)
    assert (got.status, got.evidence) == (200, [AMBIGUOUS, EXECUTED])
    # A forward proxy is asked for the whole address (RFC 9112 section 3.2.2).
    assert [one.target for one in proxy.received] == [server.url] * 2
    assert len(server.received) == 2


@everywhere
def test_https_goes_through_a_tunnel_of_the_proxy_and_a_tunnel_that_fails_is_tried_again(
    backend: str | None,
) -> None:
    with (
        Http1Server([Answer(201)], tls=server_tls()) as server,
        HttpProxy([Answer(502)], credentials=("user", "secret")) as proxy,
        wrapped(
            backend,
            proxy=httpx.Proxy(proxy.url, auth=("user", "secret")),
            verify=client_tls(),
        ) as client,
    ):
        got = client.send("POST", server.url, content=b"pay")
    assert (got.status, got.evidence) == (201, [NOT_SENT, EXECUTED])
    assert [one.method for one in proxy.received] == ["CONNECT"] * 2
    assert [one.body for one in server.executed] == [b"pay"]


@everywhere
def test_a_socks_proxy_of_the_argument_stays(backend: str | None) -> None:
    with (
        Http1Server([Drop("request"), Answer(200)]) as server,
        SocksProxy() as proxy,
        wrapped(backend, proxy=proxy.url) as client,
    ):
        got = client.send("GET", server.url)
    assert (got.status, len(got.report.attempts)) == (200, 2)
    assert len(proxy.executed) == 2


@everywhere
@pytest.mark.parametrize("upper", [True, False], ids=["upper case", "lower case"])
def test_the_proxies_of_the_environment_are_kept_and_wrapped(
    backend: str | None, upper: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Http1Server([Answer(503, LAST), Answer(200)]) as plain,
        Http1Server([Answer(201)], tls=server_tls()) as secure,
        HttpProxy() as forward,
        HttpProxy([Drop("request")]) as tunnels,
    ):
        for name, url in (("http_proxy", forward.url), ("https_proxy", tunnels.url)):
            monkeypatch.setenv(name.upper() if upper else name, url)
        with wrapped(backend, verify=client_tls()) as client:
            got = client.send("GET", plain.url)
            paid = client.send("POST", secure.url, content=b"pay")
    assert (got.status, len(got.report.attempts)) == (200, 2)
    assert [one.target for one in forward.received] == [plain.url] * 2
    assert (paid.status, paid.evidence) == (201, [NOT_SENT, EXECUTED])
    assert [one.method for one in tunnels.received] == ["CONNECT"] * 2
    assert len(secure.executed) == 1


@everywhere
def test_what_the_environment_excepts_from_the_proxy_goes_straight_and_retries(
    backend: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Http1Server([Answer(503), Answer(200)]) as server, HttpProxy() as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "localhost")
        with wrapped(backend) as client:
            straight = client.send("GET", f"http://localhost:{server.port}/")
            assert (proxy.connections, len(server.received)) == (0, 2)
            through = client.send("GET", server.url)
    assert (straight.status, len(straight.report.attempts)) == (200, 2)
    assert (through.status, len(proxy.received)) == (200, 1)


# TLS ----------------------------------------------------------------------------------------------


@everywhere
def test_the_trust_that_the_client_was_given_decides(backend: str | None) -> None:
    with Http1Server([Answer(503), Answer(200)], tls=server_tls()) as server:
        with wrapped(backend, verify=client_tls()) as client:
            got = client.send("GET", server.url)
        with wrapped(backend, verify=True) as stranger:
            refused = stranger.send("GET", server.url)
    assert (got.status, len(got.report.attempts)) == (200, 2)
    assert (refused.outcome, refused.evidence) == (Outcome.PERMANENT_FAILURE, [NOT_SENT])
    assert isinstance(refused.error, httpx.ConnectError)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def wants_certificates(authority: trustme.CA) -> ssl.SSLContext:
    """A server's TLS that lets nobody in without a certificate of the authority's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """A client's TLS that trusts the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    return context


@everywhere
@pytest.mark.parametrize("given", ["cert", "context"])
def test_the_clients_own_certificate_is_shown_on_every_connection(
    backend: str | None,
    given: str,
    authority: trustme.CA,
    wants_certificates: ssl.SSLContext,
    trusting: ssl.SSLContext,
    tmp_path: Path,
) -> None:
    own = authority.issue_cert("client.test")
    arguments: dict[str, Any] = {"verify": trusting}
    if given == "cert":
        arguments["cert"] = str(tmp_path / "client.pem")
        own.private_key_and_cert_chain_pem.write_to_path(arguments["cert"])
    else:
        own.configure_cert(trusting)
    with (
        Http1Server([Drop("request"), Answer(200)], tls=wants_certificates) as server,
        # httpx 0.28 would rather be given a context.
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", DeprecationWarning)
        with wrapped(backend, **arguments) as client:
            got = client.send("GET", server.url)
    assert (got.status, got.evidence) == (200, [AMBIGUOUS, EXECUTED])
    assert (server.connections, server.failed_handshakes) == (2, 0)


@everywhere
def test_a_client_without_the_certificate_is_let_in_no_more_than_before(
    backend: str | None, wants_certificates: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    # In TLS 1.3 a client is done with the handshake before the server has looked for a certificate.
    wants_certificates.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        Http1Server(tls=wants_certificates) as server,
        wrapped(backend, verify=trusting) as client,
    ):
        got = client.send("GET", server.url)
    assert isinstance(got.error, httpx.ConnectError)
    assert server.received == []


# HTTP/2, limits -----------------------------------------------------------------------------------


@everywhere
def test_http2_is_still_negotiated(backend: str | None) -> None:
    with (
        Http2Server([Answer(503), Answer(200)], tls=server_tls()) as server,
        wrapped(backend, http2=True, verify=client_tls()) as client,
    ):
        got = client.send("GET", server.url)
    assert got.response is not None
    assert (got.status, got.response.http_version) == (200, "HTTP/2")
    # Both attempts are streams of one connection.
    assert (len(server.received), server.connections) == (2, 1)


@everywhere
def test_http2_is_still_negotiated_through_a_tunnel(backend: str | None) -> None:
    with (
        Http2Server([Answer(200)], tls=server_tls()) as server,
        HttpProxy([Answer(502)]) as proxy,
        wrapped(backend, http2=True, verify=client_tls(), proxy=proxy.url) as client,
    ):
        got = client.send("POST", server.url, content=b"pay")
    assert got.response is not None
    assert (got.response.http_version, got.evidence) == ("HTTP/2", [NOT_SENT, EXECUTED])


@everywhere
def test_the_limit_of_connections_holds_for_all_attempts(backend: str | None) -> None:
    limits = httpx.Limits(max_connections=1)
    timeout = httpx.Timeout(10.0, pool=0.02)
    body = b"x" * 100_000  # longer than what is read within the attempt
    with (
        Http1Server([Answer(200, body=body), Answer(503), Answer(200)]) as server,
        wrapped(backend, limits=limits, timeout=timeout) as client,
    ):
        held = client.send("GET", server.url, stream=True)
        assert held.response is not None
        waited = client.send("POST", server.url, content=b"pay")
        assert server.connections == 1
        client.close(held.response)
        freed = client.send("GET", server.url)
    assert isinstance(waited.error, httpx.PoolTimeout)
    assert (waited.evidence, waited.report.executed) == ([NOT_SENT] * 3, False)
    assert (freed.status, len(freed.report.attempts)) == (200, 2)


@everywhere
def test_a_client_that_keeps_no_connections_keeps_none(backend: str | None) -> None:
    limits = httpx.Limits(max_keepalive_connections=0)
    with (
        Http1Server([Answer(503), Answer(200)]) as server,
        wrapped(backend, limits=limits) as client,
    ):
        client.send("GET", server.url)
    assert (len(server.received), server.connections) == (2, 2)


# Mounts -------------------------------------------------------------------------------------------


class Recording:
    """A budget that grants everything and remembers what it was asked for."""

    def __init__(self) -> None:
        self.deposits: list[int | None] = []
        self.withdrawals: list[int | None] = []

    def deposit(self, origin: tuple[str, str, int | None]) -> None:
        self.deposits.append(origin[2])

    def withdraw(self, origin: tuple[str, str, int | None]) -> bool:
        self.withdrawals.append(origin[2])
        return True


@everywhere
def test_every_mounted_transport_is_wrapped_and_all_share_one_budget(backend: str | None) -> None:
    transport = httpx.HTTPTransport if backend is None else httpx.AsyncHTTPTransport
    budget = Recording()
    with (
        Http1Server([Answer(503, LAST)]) as own,
        Http1Server([Answer(503)], tls=server_tls()) as mounted,
        Http1Server([Answer(503)]) as excepted,
        HttpProxy() as proxy,
        wrapped(
            backend,
            mounts={
                "https://127.0.0.1": transport(verify=client_tls()),
                "all://127.0.0.1": transport(proxy=proxy.url),
                # None: not through the mount that would match, but by the client's own.
                f"all://127.0.0.1:{excepted.port}": None,
            },
            options={"budget": budget},
        ) as client,
    ):
        statuses = [client.send("GET", one.url).status for one in (own, mounted, excepted)]
    assert statuses == [200] * 3
    ports = [own.port, mounted.port, excepted.port]
    assert budget.deposits == budget.withdrawals == ports
    assert [one.target for one in proxy.received] == [own.url] * 2


class Mounted(httpx.MockTransport):
    """A transport that counts how often it is closed."""

    closes = 0

    def close(self) -> None:
        self.closes += 1


def test_a_transport_that_serves_two_patterns_is_wrapped_once() -> None:
    statuses = iter([503, 200, 503, 200])
    inner = Mounted(lambda request: httpx.Response(next(statuses)))
    client = wrap_client(
        httpx.Client(mounts={"all://a.test": inner, "all://b.test": inner}, verify=False),
        policy=QUICK,
    )
    with client:
        for url in ("http://a.test/", "http://b.test/"):
            assert len(get_report(client.get(url)).attempts) == 2
        mounts = client.__dict__["_mounts"]
        assert len(set(mounts.values())) == 1


# Whose client it is -------------------------------------------------------------------------------


class SdkClient(httpx.Client):
    """What somebody's SDK keeps: a subclass with habits of its own."""

    def __init__(self, token: str, **arguments: Any) -> None:
        super().__init__(
            headers={"Authorization": f"Bearer {token}"},
            event_hooks={"response": [self.note]},
            **arguments,
        )
        self.noted: list[int] = []

    def note(self, response: httpx.Response) -> None:
        self.noted.append(response.status_code)


class AsyncSdkClient(httpx.AsyncClient):
    """The same for tasks."""

    def __init__(self, token: str, **arguments: Any) -> None:
        super().__init__(
            headers={"Authorization": f"Bearer {token}"},
            event_hooks={"response": [self.note]},
            **arguments,
        )
        self.noted: list[int] = []

    async def note(self, response: httpx.Response) -> None:
        self.noted.append(response.status_code)


class Sdk:
    """Somebody else's library: it builds its client itself, and lets nobody in but by attribute."""

    def __init__(self, url: str, token: str) -> None:
        self.http = SdkClient(token, base_url=url, http2=True, verify=client_tls())

    def pay(self, amount: int) -> str:
        response = self.http.post("/payments", json={"amount": amount}, headers=KEY)
        return response.raise_for_status().text

    def close(self) -> None:
        self.http.close()


class AsyncSdk:
    """The same for tasks."""

    def __init__(self, url: str, token: str) -> None:
        self.http = AsyncSdkClient(token, base_url=url, http2=True, verify=client_tls())

    async def pay(self, amount: int) -> str:
        response = await self.http.post("/payments", json={"amount": amount}, headers=KEY)
        return response.raise_for_status().text


@pytest.fixture
def payments() -> Iterator[Http2Server]:
    lost, receipt = Drop("request", executed=True), Answer(201, body=b"R-1001")
    with Http2Server([lost, receipt], tls=server_tls()) as server:
        yield server


def check_sdk(server: Http2Server, sdk: Sdk | AsyncSdk, receipt: str) -> None:
    assert receipt == "R-1001"
    assert sdk.http.noted == [201]
    assert len(server.received) == 2
    for one in server.received:
        assert one.target == "/payments"
        assert one.header("authorization") == "Bearer t"
        assert one.header("idempotency-key") == "k1"
        assert json.loads(one.body) == {"amount": 42}


def test_a_client_that_an_sdk_built_is_wrapped_in_its_place(payments: Http2Server) -> None:
    sdk = Sdk(payments.url, "t")
    same: SdkClient = wrap_client(sdk.http, policy=QUICK)
    assert same is sdk.http
    receipt = sdk.pay(42)
    sdk.close()
    check_sdk(payments, sdk, receipt)


@pytest.mark.anyio
async def test_an_async_client_that_an_sdk_built_is_wrapped_in_its_place(
    payments: Http2Server, anyio_backend: str
) -> None:
    sdk = AsyncSdk(payments.url, "t")
    same: AsyncSdkClient = wrap_client(sdk.http, policy=QUICK)
    assert same is sdk.http
    receipt = await sdk.pay(42)
    await sdk.http.aclose()
    check_sdk(payments, sdk, receipt)


def test_a_client_in_use_can_be_wrapped_and_keeps_its_connection() -> None:
    with Http1Server([Answer(200), Answer(503), Answer(200)]) as server:
        with httpx.Client(verify=False) as client:
            assert "retry" not in client.get(server.url).extensions
            wrap_client(client, policy=QUICK)
            assert len(get_report(client.get(server.url)).attempts) == 2
            assert server.connections == 1
        with pytest.raises(RuntimeError, match="closed"):
            client.get(server.url)


@pytest.mark.anyio
async def test_an_async_client_in_use_can_be_wrapped_and_keeps_its_connection(
    anyio_backend: str,
) -> None:
    with Http1Server([Answer(200), Answer(503), Answer(200)]) as server:
        async with httpx.AsyncClient(verify=False) as client:
            assert "retry" not in (await client.get(server.url)).extensions
            wrap_client(client, policy=QUICK)
            assert len(get_report(await client.get(server.url)).attempts) == 2
            assert server.connections == 1


def test_leaving_the_client_closes_what_is_wrapped() -> None:
    statuses = iter([503, 200])
    inner = Mounted(lambda request: httpx.Response(next(statuses)))
    with wrap_client(httpx.Client(transport=inner), policy=QUICK) as client:
        client.get("http://a.test/")
    assert inner.closes == 1


# Once, and in plain words -------------------------------------------------------------------------


@everywhere
def test_wrapping_again_changes_nothing(backend: str | None) -> None:
    first: list[RetryEvent] = []
    second: list[RetryEvent] = []

    def twice(client: Any, **options: Any) -> Any:
        wrap_client(client, listeners=[first.append], **options)
        before = dict(client.__dict__["_mounts"]), client.__dict__["_transport"]
        again = wrap_client(client, listeners=[second.append], policy=RetryPolicy(max_attempts=9))
        assert (client.__dict__["_mounts"], client.__dict__["_transport"]) == before
        return again

    with (
        Http1Server([Answer(503)] * 9) as server,
        wrapped(backend, wrap=twice) as client,
    ):
        got = client.send("GET", server.url)
    assert (got.stop_reason, len(server.received)) == (StopReason.MAX_ATTEMPTS, 3)
    assert first
    assert second == []


def test_a_client_that_was_given_a_retry_transport_keeps_it() -> None:
    calls: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        return httpx.Response(503)

    own = RetryTransport(httpx.MockTransport(answer), policy=QUICK.replace(max_attempts=2))
    with wrap_client(httpx.Client(transport=own), policy=QUICK) as client:
        client.get("http://a.test/")
    assert len(calls) == 2


@pytest.mark.parametrize("thing", [None, "client", httpx.Client, httpx, RetryTransport()], ids=str)
def test_what_is_no_client_is_refused_by_name(thing: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"^client must be an {NAME}\.Client or an {NAME}\.AsyncClient"
    ):
        wrap_client(thing)


@pytest.mark.parametrize("hidden", ["_transport", "_mounts"])
def test_a_client_whose_transports_are_elsewhere_is_refused_with_the_way_out(hidden: str) -> None:
    with SdkClient("t", verify=False) as client:
        kept = client.__dict__.pop(hidden)
        before = dict(client.__dict__)
        with pytest.raises(TypeError, match=r"of SdkClient .* transport=RetryTransport\(\.\.\.\)"):
            wrap_client(client)
        assert client.__dict__ == before
        client.__dict__[hidden] = kept


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": "often"}, "policy must be"),
        ({"listeners": [1]}, "listener"),
        ({"listeners": 1}, "listeners must hold callables, not 1"),
    ],
    ids=str,
)
def test_a_bad_option_is_refused_and_leaves_the_client_as_it_was(
    options: dict[str, Any], words: str
) -> None:
    inner = httpx.MockTransport(lambda request: httpx.Response(503))
    with httpx.Client(transport=inner) as client:
        with pytest.raises(TypeError, match=words):
            wrap_client(client, **options)
        assert "retry" not in client.get("http://a.test/").extensions


def test_a_mount_that_is_no_transport_leaves_the_whole_client_as_it_was() -> None:
    inner = httpx.MockTransport(lambda request: httpx.Response(503))
    mounts: Any = {"all://b.test": object()}
    client = httpx.Client(transport=inner, mounts=mounts)
    with pytest.raises(TypeError, match=f"transport must be an {NAME} transport"):
        wrap_client(client)
    assert "retry" not in client.get("http://a.test/").extensions


def test_a_client_with_a_transport_of_the_other_kind_is_told_so_at_its_first_request() -> None:
    wrong: Any = httpx.AsyncHTTPTransport(verify=False)
    with pytest.raises(TypeError, match=rf"an async transport.*{NAME}\.Client was given it"):
        wrap_client(httpx.Client(transport=wrong)).get("http://a.test/")

    async def main() -> None:
        sync: Any = httpx.HTTPTransport(verify=False)
        client = wrap_client(httpx.AsyncClient(transport=sync))
        with pytest.raises(TypeError, match=rf"a sync transport.*{NAME}\.AsyncClient was given"):
            await client.get("http://a.test/")

    anyio.run(main)
