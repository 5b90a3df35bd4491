"""The transfers to copy: what arrives is what was sent, to the byte, or there is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from httpx_safe_retry import (
    Backoff,
    PermanentFailureError,
    RetryError,
    RetryPolicy,
    RetryTransport,
    UncertainWriteError,
)
from httpx_safe_retry.testing import Fault, LoopbackServer, ServerRequest, ServerResponse

from .examples import loaded, shown_by

example = loaded("streaming_transfers.py")

BROKEN = Fault(response_bytes=200_000)
LATER = b"a shorter version\n" * 5_000


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Don't wait: note it."""
    noted: list[float] = []
    monkeypatch.setattr(example, "time", SimpleNamespace(sleep=noted.append))
    return noted


def client_for(server: LoopbackServer, **policy: Any) -> httpx.Client:
    transport = RetryTransport(policy=RetryPolicy(backoff=Backoff(base=0), **policy))
    return httpx.Client(base_url=server.url, transport=transport)


def test_uploads_and_a_download_arrive_whole_over_connections_that_break() -> None:
    lines = shown_by("streaming_transfers.py").splitlines()
    whole = f"{len(example.ROWS):,}"
    requests = [line.split() for line in lines[:7]]
    assert [one[:2] for one in requests] == [
        *[["PUT", "/generated"]] * 2,
        *[["POST", "/file"]] * 2,
        *[["GET", "/rows"]] * 3,
    ]
    assert [one[2] == whole for one in requests[:4]] == [False, True, True, True]
    assert requests[4][2:] == ["all", "of", "it"]
    first, second = (int(one[2].removeprefix("bytes=").removesuffix("-")) for one in requests[5:])
    assert 190_000 < first < 200_000 < second < 400_000
    assert lines[7:] == [
        "Stored on the server, whole: /generated, /file.",
        "Downloaded whole: yes.",
    ]


class Generated:
    """Makes a body, and counts how often."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> Iterator[bytes]:
        self.made += 1
        yield from [b"x" * 10_000] * 20


def test_a_body_that_was_recorded_is_made_once() -> None:
    body = Generated()
    with LoopbackServer(Fault(request_bytes=100_000)) as server, client_for(server) as client:
        example.upload(client, "/", body)
    assert body.made == 1
    assert [one.body for one in server.ledger] == [b"x" * 200_000]


def test_a_body_that_is_too_long_to_be_recorded_is_made_anew(waits: list[float]) -> None:
    body = Generated()
    with (
        LoopbackServer(Fault(request_bytes=100_000)) as server,
        client_for(server, replay_limit=50_000) as client,
    ):
        example.upload(client, "/", body)
    assert body.made == 2
    assert len(waits) == 1
    assert [one.body for one in server.ledger] == [b"x" * 200_000]


def test_it_is_made_anew_only_so_often() -> None:
    body = Generated()
    with (
        LoopbackServer(Fault(request_bytes=100_000), repeat=True) as server,
        client_for(server, replay_limit=50_000) as client,
        pytest.raises(UncertainWriteError) as raised,
    ):
        example.upload(client, "/", body, restarts=1)
    assert body.made == 2
    assert isinstance(raised.value.__cause__, httpx.TransportError)
    assert not isinstance(raised.value.__cause__, RetryError)


@pytest.mark.parametrize("answers", [(401,), (429, 401)], ids=str)
def test_what_refuses_it_at_last_says_nothing_about_the_one_before(answers: Any) -> None:
    with (
        LoopbackServer(Fault(), *answers) as server,
        client_for(server, replay_limit=50_000) as client,
        pytest.raises(UncertainWriteError) as raised,
    ):
        example.upload(client, "/", Generated())
    assert len(server.ledger) == 1
    assert isinstance(raised.value.__cause__, PermanentFailureError)


def test_it_is_not_made_anew_where_that_is_not_what_was_missing() -> None:
    body = Generated()
    with (
        LoopbackServer(503, repeat=True) as server,
        client_for(server) as client,
        pytest.raises(RetryError),
    ):
        example.upload(client, "/", body)
    assert body.made == 1


def test_a_file_whose_answer_is_lost_is_stored_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(example.ROWS)
    with LoopbackServer(Fault(), dedupe=True) as server, client_for(server) as client:
        example.upload_file(client, "/", path, key="k")
    assert [one.body for one in server.ledger] == [example.ROWS]
    assert len(server.requests) == 2


def ranges(server: LoopbackServer) -> list[bool]:
    return ["Range" in request.headers for request in server.requests]


def test_a_download_goes_on_where_it_broke_off(tmp_path: Path, waits: list[float]) -> None:
    target = tmp_path / "rows.csv"
    server = LoopbackServer(BROKEN, BROKEN, handler=example.serve)
    with server, client_for(server) as client:
        example.download(client, "/rows", target)
    assert target.read_bytes() == example.ROWS
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]
    assert ranges(server) == [False, True, True]
    assert {request.headers["Accept-Encoding"] for request in server.requests} == {"identity"}
    assert len(waits) == 2


def test_what_has_changed_meanwhile_is_loaded_from_its_beginning(tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    versions = [LATER, example.ROWS]

    def changing(request: ServerRequest) -> ServerResponse:
        etag = f'"{len(versions)}"'
        return ServerResponse(headers={"ETag": etag}, body=versions.pop())

    with LoopbackServer(BROKEN, handler=changing) as server, client_for(server) as client:
        example.download(client, "/rows", target)
    assert target.read_bytes() == LATER
    assert ranges(server) == [False, True]


@pytest.mark.parametrize("headers", [{}, {"ETag": 'W/"v1"'}], ids=["no ETag", "a weak one"])
def test_without_an_etag_to_rely_on_it_is_loaded_from_its_beginning(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    target = tmp_path / "rows.csv"
    versions = iter([example.ROWS, LATER])

    def unnamed(request: ServerRequest) -> ServerResponse:
        return ServerResponse(headers=headers, body=next(versions))

    with LoopbackServer(BROKEN, handler=unnamed) as server, client_for(server) as client:
        example.download(client, "/rows", target)
    assert target.read_bytes() == LATER
    assert ranges(server) == [False, False]


def test_a_body_that_is_all_there_but_for_its_end_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    body = example.ROWS

    def nothing_more(request: ServerRequest) -> ServerResponse:
        return ServerResponse(status=416, headers={"Content-Range": f"bytes */{len(body)}"})

    head = b'HTTP/1.1 200 OK\r\nETag: "v1"\r\nTransfer-Encoding: chunked\r\n\r\n'
    cut = ServerResponse(raw=b"%b%x\r\n%b\r\n" % (head, len(body), body))
    with (
        LoopbackServer(cut, handler=nothing_more) as server,
        client_for(server) as client,
    ):
        example.download(client, "/rows", target)
    assert target.read_bytes() == body
    assert ranges(server) == [False, True]


def start_of(request: ServerRequest) -> int:
    return int(request.headers["Range"].removeprefix("bytes=").removesuffix("-"))


def part(
    first: int, *, end: int = len(example.ROWS), etag: str | None = '"v1"', of: str = ""
) -> ServerResponse:
    total = of or str(len(example.ROWS))
    headers = {"Content-Range": f"bytes {first}-{end - 1}/{total}"}
    if etag is not None:
        headers["ETag"] = etag
    return ServerResponse(status=206, headers=headers, body=example.ROWS[first:end])


def resumed_by(give: Callable[[int], ServerResponse]) -> LoopbackServer:
    """A server that breaks off once, and then gives what `give` makes of the start asked for."""

    def handler(request: ServerRequest) -> ServerResponse:
        if "Range" in request.headers:
            return give(start_of(request))
        answer: ServerResponse = example.serve(request)
        return answer

    return LoopbackServer(BROKEN, handler=handler)


def refused(server: LoopbackServer, target: Path) -> str:
    """Download into a file that must not get its name; what is wrong with it."""
    with server, client_for(server) as client, pytest.raises(ValueError, match=" ") as raised:
        example.download(client, "/rows", target)
    assert not target.exists()
    return str(raised.value)


@pytest.mark.parametrize("of", ["", "*"], ids=["a total", "no total"])
def test_parts_that_are_shorter_than_asked_for_are_put_together(
    tmp_path: Path, waits: list[float], of: str
) -> None:
    target = tmp_path / "rows.csv"
    whole = len(example.ROWS)

    def capped(first: int) -> ServerResponse:
        if first == whole:
            return ServerResponse(status=416, headers={"Content-Range": f"bytes */{whole}"})
        return part(first, end=min(first + 100_000, whole), of=of)

    with resumed_by(capped) as server, client_for(server) as client:
        example.download(client, "/rows", target)
    assert target.read_bytes() == example.ROWS
    assert len(waits) == 1


@pytest.mark.parametrize("etag", ['"v2"', None], ids=["another version", "who knows which"])
def test_a_part_that_is_not_of_the_same_version_is_an_error(
    tmp_path: Path, etag: str | None
) -> None:
    server = resumed_by(lambda first: part(first, etag=etag))
    assert "version" in refused(server, tmp_path / "rows.csv")


@pytest.mark.parametrize(
    ("first", "end"),
    [
        pytest.param(-10, len(example.ROWS), id="from before"),
        pytest.param(10, len(example.ROWS), id="from behind"),
        pytest.param(0, 0, id="nothing at all"),
    ],
)
def test_another_part_than_was_asked_for_is_an_error(tmp_path: Path, first: int, end: int) -> None:
    server = resumed_by(lambda asked: part(asked + first, end=end or asked))
    assert "asked for the bytes from" in refused(server, tmp_path / "rows.csv")


def test_a_part_without_a_range_is_an_error(tmp_path: Path) -> None:
    parts = ServerResponse(status=206, headers={"ETag": '"v1"'}, body=b"--boundary--")
    server = LoopbackServer(BROKEN, parts, handler=example.serve)
    assert "asked for the bytes from" in refused(server, tmp_path / "rows.csv")


def test_a_part_that_nobody_asked_for_is_an_error(tmp_path: Path) -> None:
    assert "version" in refused(LoopbackServer(part(0, end=10)), tmp_path / "rows.csv")


def test_a_part_that_is_shorter_than_it_says_is_an_error(tmp_path: Path) -> None:
    server = resumed_by(lambda first: replace(part(first), body=b"the end"))
    assert f"should end at {len(example.ROWS)}" in refused(server, tmp_path / "rows.csv")


def test_a_body_that_ends_with_its_connection_may_be_cut_and_is_an_error(tmp_path: Path) -> None:
    cut = ServerResponse(
        raw=b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + example.ROWS[:70_000]
    )
    assert "end with its connection" in refused(LoopbackServer(cut), tmp_path / "rows.csv")


def test_a_redirect_that_is_not_followed_is_no_file(tmp_path: Path) -> None:
    moved = ServerResponse(status=302, headers={"Location": "/elsewhere"}, body=b"look there")
    assert "302" in refused(LoopbackServer(moved), tmp_path / "rows.csv")


class Body(httpx.SyncByteStream):
    def __iter__(self) -> Iterator[bytes]:
        yield b"a,b\n"


def download_from(response: httpx.Response, target: Path) -> None:
    transport = RetryTransport(httpx.MockTransport(lambda request: response))
    with httpx.Client(transport=transport) as client:
        example.download(client, "https://api.example.com/rows", target)


def test_the_end_of_a_stream_of_http2_is_the_end_of_the_body(tmp_path: Path) -> None:
    response = httpx.Response(200, stream=Body(), extensions={"http_version": b"HTTP/2"})
    download_from(response, tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_bytes() == b"a,b\n"


def test_a_transport_that_does_not_count_is_not_believed(tmp_path: Path) -> None:
    response = httpx.Response(200, headers={"Content-Length": "100000"}, stream=Body())
    with pytest.raises(ValueError, match="should end at 100000, and ends at 4"):
        download_from(response, tmp_path / "rows.csv")
    assert not (tmp_path / "rows.csv").exists()


def test_a_body_that_grows_each_time_may_break_as_often_as_it_does(tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    broken = Fault(response_bytes=70_000)
    with (
        LoopbackServer(broken, repeat=True, handler=example.serve) as server,
        client_for(server) as client,
    ):
        example.download(client, "/rows", target, resumes=1)
    assert target.read_bytes() == example.ROWS
    assert len(server.requests) == 7


def whole_each_time(request: ServerRequest) -> ServerResponse:
    return ServerResponse(body=example.ROWS)


@pytest.mark.parametrize("lengths", [[70_000, 70_000, 70_000], [80_000, 70_000, 80_000]])
def test_a_body_that_breaks_and_does_not_grow_raises_the_error_of_httpx(
    tmp_path: Path, waits: list[float], lengths: list[int]
) -> None:
    breaks = [Fault(response_bytes=length) for length in lengths]
    with (
        LoopbackServer(*breaks, handler=whole_each_time) as server,
        client_for(server) as client,
        pytest.raises(httpx.RemoteProtocolError) as raised,
    ):
        example.download(client, "/rows", tmp_path / "rows.csv", resumes=2)
    assert not isinstance(raised.value, RetryError)
    assert len(server.requests) == 3
    assert len(waits) == 2
    assert not (tmp_path / "rows.csv").exists()


@pytest.mark.parametrize("step", [404, 503, Fault()], ids=["404", "503", "no answer"])
def test_without_a_body_there_is_nothing_to_resume(
    tmp_path: Path, waits: list[float], step: Any
) -> None:
    with (
        LoopbackServer(step, repeat=True) as server,
        client_for(server) as client,
        pytest.raises(RetryError),
    ):
        example.download(client, "/rows", tmp_path / "rows.csv")
    assert len(server.requests) == (1 if step == 404 else 3)
    assert waits == []
    assert not (tmp_path / "rows.csv").exists()
