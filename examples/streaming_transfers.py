"""Uploads and downloads that are too big for memory, over connections that break.

The idea: up to the head of the answer a broken transfer is the transport's to mend, after it yours.

Uploads. A retry sends the same bytes again. Pass a file as it is: it is read again from where it
was. A generator is recorded while it is sent, up to `replay_limit` bytes (64 MiB, most of it in a
temporary file). Beyond that the request ends with `BODY_NOT_REPLAYABLE`, and a new generator has to
be made, as `upload` does. PUT can be repeated; a POST needs an idempotency key.

Downloads. A body of more than `prefetch` bytes (64 KiB), or of unknown length, is yours as soon as
its head is there, since you may have used a part of it. So an error in it is no `RetryError` but
httpx's own, and to start over would be to load all of it again. `download` asks for the rest (RFC
9110 section 14.2), and only if it is still the same (`If-Range`, section 13.1.5): the end of one
version behind the beginning of another is worse than an error. So is a file that looks whole: what
a part is and where it ends is for the client to inspect (section 15.3.7).

With an `httpx.AsyncClient` it is the same, with `async with` and `aiter_raw`.

    python examples/streaming_transfers.py
"""

from __future__ import annotations

import logging
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import httpx

from httpx_safe_retry import (
    Backoff,
    RetryError,
    RetryTransport,
    StopReason,
    UncertainWriteError,
    raise_for_outcome,
)
from httpx_safe_retry.testing import Fault, LoopbackServer, ServerRequest, ServerResponse

BACKOFF = Backoff(base=0.1, cap=10.0)


def upload(
    client: httpx.Client, url: str, chunks: Callable[[], Iterable[bytes]], *, restarts: int = 2
) -> httpx.Response:
    """PUT what `chunks()` generates; it is called again where a recording was not enough.

    Raises `RetryError`, an `UncertainWriteError` if any of these PUTs may have been done.
    """
    number = 0
    doubt: RetryError | None = None
    while True:
        try:
            return raise_for_outcome(client.put(url, content=chunks()))
        except RetryError as error:
            number += 1
            uncertain = isinstance(error, UncertainWriteError)
            if number > restarts or error.report.stop_reason is not StopReason.BODY_NOT_REPLAYABLE:
                if uncertain or doubt is None:
                    raise
                # What refuses this PUT says nothing about the one before.
                raise doubt from error
            doubt = error if uncertain else doubt
            time.sleep(BACKOFF.delay(number, None, random.random))


def upload_file(client: httpx.Client, url: str, path: Path, *, key: str) -> httpx.Response:
    """POST a file under an idempotency key. Raises `RetryError`."""
    with path.open("rb") as file:
        response = client.post(url, content=file, headers={"Idempotency-Key": key})
        return raise_for_outcome(response)


def download(client: httpx.Client, url: str, target: Path, *, resumes: int = 5) -> None:
    """GET into a file, which has its name only once it is whole.

    Raises `RetryError` where no answer is to be had, another `httpx.TransportError` for a body that
    was resumed `resumes` times in a row and has not grown, and `ValueError` for an answer that
    doesn't show that it is what was asked for, or where it ends.
    """
    part = target.with_name(f"{target.name}.part")
    with part.open("wb") as file:
        receiver = Receiver(client, url, file)
        number = most = 0
        while True:
            try:
                if receiver.receive():
                    break
            except RetryError:
                raise  # no answer at all: the transport has tried for as long as it may
            except httpx.TransportError:
                got = file.tell()
                # Beyond all that ever came: one that starts over each time comes to an end, too.
                number = 1 if got > most else number + 1
                most = max(got, most)
                if number > resumes:
                    raise
                # To resume is to retry, and the transport can't know: so wait as it would.
                time.sleep(BACKOFF.delay(number, None, random.random))
    part.replace(target)


class Receiver:
    """A file that is being received, over as many requests as it takes."""

    def __init__(self, client: httpx.Client, url: str, file: BinaryIO) -> None:
        self._client = client
        self._url = url
        self._file = file
        self._etag = ""

    def receive(self) -> bool:
        """Ask for what is missing; return whether it was all of that."""
        have = self._file.tell()
        # Compressed on the way, every answer could be other bytes.
        headers = {"Accept-Encoding": "identity"}
        if have and self._etag:
            headers |= {"Range": f"bytes={have}-", "If-Range": self._etag}
        with self._client.stream("GET", self._url, headers=headers) as response:
            content_range = response.headers.get("Content-Range", "")
            if response.status_code == 416 and content_range == f"bytes */{have}":
                return True  # nothing was missing but the end
            raise_for_outcome(response)
            end: int | None
            if response.status_code == 206:
                end, is_last = self._go_on(response, have)
            else:
                end, is_last = self._start_over(response), True
            for chunk in response.iter_raw():
                self._file.write(chunk)
        if end not in (None, self._file.tell()):
            raise ValueError(f"should end at {end}, and ends at {self._file.tell()}")
        return is_last

    def _go_on(self, response: httpx.Response, have: int) -> tuple[int, bool]:
        """Return where this part ends, and whether it is the last one."""
        # A server may ignore If-Range, and may send less than it was asked for.
        etag = response.headers.get("ETag")
        if etag != self._etag:
            raise ValueError(f"got a part of the version {etag}, not of {self._etag or 'any'}")
        content_range = response.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", content_range)
        if match is None or int(match[1]) != have or int(match[2]) < have:
            raise ValueError(f"asked for the bytes from {have}, got {content_range!r}")
        end = int(match[2]) + 1
        return end, match[3] == str(end)

    def _start_over(self, response: httpx.Response) -> int | None:
        """Return where the body ends; None if its framing shows that."""
        if response.status_code != 200:
            raise ValueError(f"asked for a file, got {response.status_code}")
        length = response.headers.get("Content-Length")
        if (
            length is None
            and response.http_version.startswith("HTTP/1")
            and "Transfer-Encoding" not in response.headers
        ):
            raise ValueError("it would end with its connection, whole or not")
        self._file.seek(0)
        self._file.truncate()
        etag = response.headers.get("ETag", "")
        # A weak one doesn't tell whether it is the same to the byte.
        self._etag = "" if etag.startswith("W/") else etag
        return None if length is None else int(length)


# What happens -----------------------------------------------------------------------------------


def generated() -> Iterator[bytes]:
    for page in range(200):
        yield b"".join(b"%d,%d,a row of a table\n" % (page, row) for row in range(100))


ROWS = b"".join(generated())


def serve(request: ServerRequest) -> ServerResponse:
    """Store nothing, and give the rows, or a part of them."""
    headers = {"ETag": '"v1"', "Accept-Ranges": "bytes"}
    first = request.headers.get("Range", "").removeprefix("bytes=").removesuffix("-")
    if not first or request.headers.get("If-Range") != headers["ETag"]:
        return ServerResponse(headers=headers, body=ROWS if request.method == "GET" else b"")
    headers["Content-Range"] = f"bytes {first}-{len(ROWS) - 1}/{len(ROWS)}"
    return ServerResponse(status=206, headers=headers, body=ROWS[int(first) :])


def main() -> None:
    cut = Fault(request_bytes=200_000)
    lost = Fault()
    broken = Fault(response_bytes=200_000)
    with (
        tempfile.TemporaryDirectory() as folder,
        LoopbackServer(cut, None, lost, None, broken, broken, handler=serve, dedupe=True) as server,
        httpx.Client(base_url=server.url, transport=RetryTransport()) as client,
    ):
        path = Path(folder) / "rows.csv"
        upload(client, "/generated", generated)
        path.write_bytes(ROWS)
        upload_file(client, "/file", path, key="upload-7130")
        download(client, "/rows", path)
        for request in server.requests:
            what = f"{len(request.body):>9,} bytes of {len(ROWS):,}"
            if request.method == "GET":
                what = request.headers.get("Range", "all of it")
            print(f"{request.method:<4} {request.path:<11} {what}")
        stored = [one.path for one in server.ledger if one.body == ROWS]
        print(f"Stored on the server, whole: {', '.join(stored)}.")
        print(f"Downloaded whole: {'yes' if path.read_bytes() == ROWS else 'NO'}.")


if __name__ == "__main__":
    logging.getLogger("httpx_safe_retry").setLevel(logging.ERROR)
    main()
