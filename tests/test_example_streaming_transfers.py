"""The transfers to copy: what arrives is what was sent, to the byte, or there is an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from httpx_safe_retry import (
    Backoff,
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
        pytest.raises(UncertainWriteError),
    ):
        example.upload(client, "/", body, restarts=1)
    assert body.made == 2


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


def test_another_part_than_was_asked_for_is_an_error(tmp_path: Path) -> None:
    wrong = ServerResponse(
        status=206, headers={"Content-Range": "bytes 0-9/10"}, body=example.ROWS[:10]
    )
    with (
        LoopbackServer(BROKEN, wrong, handler=example.serve) as server,
        client_for(server) as client,
        pytest.raises(ValueError, match="bytes 0-9/10"),
    ):
        example.download(client, "/rows", tmp_path / "rows.csv")
    assert not (tmp_path / "rows.csv").exists()


def test_a_body_that_always_breaks_raises_the_error_of_httpx(
    tmp_path: Path, waits: list[float]
) -> None:
    broken = Fault(response_bytes=70_000)
    with (
        LoopbackServer(broken, repeat=True, handler=example.serve) as server,
        client_for(server) as client,
        pytest.raises(httpx.RemoteProtocolError) as raised,
    ):
        example.download(client, "/rows", tmp_path / "rows.csv", resumes=2)
    assert not isinstance(raised.value, RetryError)
    assert ranges(server) == [False, True, True]
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
