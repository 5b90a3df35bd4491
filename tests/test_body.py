"""What an attempt sends is the body from its first byte to its last, or it fails loudly."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import threading
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import anyio
import anyio.to_thread
import pytest

from httpx_safe_retry import _recorded, _recording
from httpx_safe_retry._body import Body
from httpx_safe_retry._body import freeze as freeze_of
from tests.library import LIBRARY, NAME, httpx

from .bodies import (
    ASYNC_KINDS,
    ASYNC_ONLY,
    CHUNKS,
    DATA,
    DUAL,
    FIXED,
    MULTIPART,
    SYNC_KINDS,
    SYNC_ONLY,
    AsyncSequence,
    Kind,
    OnceStream,
    SeekableDuck,
    agenerate,
    asend,
    at,
    atake,
    generate,
    name_of,
    send,
    take,
)

freeze = partial(freeze_of, LIBRARY)
BEHIND = LIBRARY.behind

ONE_SHOT = ("generator", "iter", "map", "duck-typed file", "file that can't seek")


def request(**arguments: Any) -> httpx.Request:
    return httpx.Request("PUT", "http://test/", **arguments)


def frozen(content: Any, *, memory: int = 1 << 20, limit: int = 1 << 26) -> Body:
    return freeze(request(content=content), memory=memory, limit=limit)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[IO[bytes]]:
    """The temporary files made in this test."""
    made: list[IO[bytes]] = []
    make = tempfile.TemporaryFile

    def record() -> IO[bytes]:
        made.append(make())
        return made[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", record)
    return made


# --- every kind of body ------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [1 << 20, 5, 0])
@pytest.mark.parametrize("kind", SYNC_KINDS, ids=name_of)
def test_every_attempt_sends_the_whole_body_wherever_the_one_before_was_cut(
    kind: Kind, memory: int
) -> None:
    for cut in (0, 1, 2, 3, None):
        body = freeze(kind.request(), memory=memory, limit=1 << 20)
        assert kind.sent.startswith(send(body, cut))
        assert body.obstacle() is None
        assert send(body, 1) == send(body, 1)
        assert send(body) == kind.sent
        assert send(body) == kind.sent
        assert body.obstacle() is None
        assert body.failure is None
        body.close()


@pytest.mark.anyio
@pytest.mark.parametrize("memory", [1 << 20, 5, 0])
@pytest.mark.parametrize("kind", ASYNC_KINDS, ids=name_of)
async def test_every_async_attempt_sends_the_whole_body_wherever_the_one_before_was_cut(
    kind: Kind, memory: int
) -> None:
    for cut in (0, 1, 2, 3, None):
        body = freeze(kind.request(), memory=memory, limit=1 << 20)
        assert kind.sent.startswith(await asend(body, cut))
        assert body.obstacle() is None
        assert await asend(body, 1) == await asend(body, 1)
        assert await asend(body) == kind.sent
        assert await asend(body) == kind.sent
        assert body.obstacle() is None
        assert body.failure is None
        await body.aclose()


@pytest.mark.parametrize("kind", SYNC_KINDS, ids=name_of)
def test_a_transport_may_iterate_the_body_twice_within_one_attempt(kind: Kind) -> None:
    body = freeze(kind.request(), memory=5, limit=1 << 20)
    stream = body.stream()
    take(stream, 2)
    assert take(stream) == kind.sent
    assert take(stream) == kind.sent
    body.close()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ASYNC_KINDS, ids=name_of)
async def test_an_async_transport_may_iterate_the_body_twice_within_one_attempt(kind: Kind) -> None:
    body = freeze(kind.request(), memory=5, limit=1 << 20)
    stream = body.stream()
    await atake(stream, 2)
    assert await atake(stream) == kind.sent
    assert await atake(stream) == kind.sent
    await body.aclose()


@pytest.mark.parametrize("kind", FIXED, ids=name_of)
def test_a_body_of_bytes_keeps_httpxs_own_stream(kind: Kind) -> None:
    original = kind.request()
    body = freeze(original, memory=0, limit=0)
    assert body.stream() is original.stream
    body.close()
    assert body.obstacle() is None


def test_multipart_without_files_keeps_httpxs_own_stream() -> None:
    original = MULTIPART[0].request()
    assert freeze(original, memory=0, limit=0).stream() is original.stream


def test_a_list_that_changes_between_attempts_is_sent_as_it_was() -> None:
    content = [b"1", b"2"]
    body = frozen(content)
    content.append(b"3")
    assert send(body) == b"12"


def test_a_buffer_in_a_list_that_changes_between_attempts_is_sent_as_it_was() -> None:
    content = [bytearray(b"12")]
    body = frozen(content)
    assert send(body) == b"12"
    content[0][:] = b"--"
    assert send(body) == b"12"


class Resuming(httpx.SyncByteStream):
    """Has more to give after its end, as one that reads a queue until it is empty."""

    def __init__(self) -> None:
        self._steps: list[bytes | None] = [b"1", None, b"2", None]

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        step = self._steps.pop(0)
        if step is None:
            raise StopIteration
        return step


class AsyncResuming(httpx.AsyncByteStream):
    """The same, async."""

    def __init__(self) -> None:
        self._steps = Resuming()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        for step in self._steps:
            return step
        raise StopAsyncIteration


def test_a_body_ends_where_it_ended_first() -> None:
    body = freeze(request(stream=Resuming()), memory=9, limit=9)
    assert send(body) == send(body) == b"1"


@pytest.mark.anyio
async def test_an_async_body_ends_where_it_ended_first() -> None:
    body = freeze(request(stream=AsyncResuming()), memory=9, limit=9)
    assert await asend(body) == await asend(body) == b"1"


@pytest.mark.parametrize(
    ("kinds", "is_sync", "is_async"),
    [
        (SYNC_ONLY, True, False),
        (ASYNC_ONLY, False, True),
        (FIXED + MULTIPART + DUAL, True, True),
    ],
)
def test_a_stream_is_sync_or_async_as_the_callers_own(
    kinds: tuple[Kind, ...], is_sync: bool, is_async: bool
) -> None:
    for kind in kinds:
        stream = freeze(kind.request(), memory=0, limit=0).stream()
        assert isinstance(stream, httpx.SyncByteStream) is is_sync, kind.name
        assert isinstance(stream, httpx.AsyncByteStream) is is_async, kind.name


def test_a_transport_that_closes_its_stream_does_not_release_the_body() -> None:
    body = frozen(generate())
    stream = body.stream()
    take(stream)
    cast("httpx.SyncByteStream", stream).close()
    assert send(body) == DATA


def test_nothing_is_read_before_the_first_attempt() -> None:
    def content() -> Iterator[bytes]:
        raise AssertionError("read ahead")
        yield b""

    body = frozen(content())
    assert body.obstacle() is None


def test_nothing_is_read_ahead() -> None:
    given: list[int] = []

    def content() -> Iterator[bytes]:
        for number in range(5):
            given.append(number)
            yield b"x"

    body = frozen(content())
    stream = iter(cast("httpx.SyncByteStream", body.stream()))
    for number in range(5):
        next(stream)
        assert given == list(range(number + 1))


# --- memory and limit --------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [0, 10, len(DATA), 1 << 20])
def test_a_body_that_is_exactly_as_long_as_the_limit_can_be_sent_again(memory: int) -> None:
    body = frozen(generate(), memory=memory, limit=len(DATA))
    assert send(body) == DATA
    assert body.obstacle() is None
    assert send(body) == DATA
    body.close()


@pytest.mark.parametrize("memory", [0, 10, len(DATA), 1 << 20])
def test_a_body_beyond_the_limit_is_sent_whole_and_only_once(memory: int) -> None:
    body = frozen(generate(), memory=memory, limit=len(DATA) - 1)
    assert send(body) == DATA
    assert body.obstacle() == f"it is longer than replay_limit ({len(DATA) - 1} bytes)"
    with pytest.raises(httpx.StreamConsumed):
        send(body)


@pytest.mark.anyio
@pytest.mark.parametrize("memory", [0, 10, len(DATA), 1 << 20])
async def test_an_async_body_beyond_the_limit_is_sent_whole_and_only_once(memory: int) -> None:
    body = frozen(agenerate(), memory=memory, limit=len(DATA) - 1)
    assert await asend(body) == DATA
    assert body.obstacle() == f"it is longer than replay_limit ({len(DATA) - 1} bytes)"
    with pytest.raises(httpx.StreamConsumed):
        await asend(body)
    await body.aclose()


def test_a_cut_attempt_within_the_limit_is_followed_by_one_that_passes_it() -> None:
    body = frozen(generate(), limit=10)
    assert send(body, 2) == b"012345"
    assert body.obstacle() is None
    assert send(body) == DATA
    assert body.obstacle() is not None


def test_a_limit_of_zero_records_nothing() -> None:
    body = frozen(generate(), limit=0)
    assert body.obstacle() is None
    assert send(body, 1) == CHUNKS[0]
    assert body.obstacle() is not None
    with pytest.raises(httpx.StreamConsumed):
        send(body)


def test_a_body_within_the_memory_makes_no_file(files: list[IO[bytes]]) -> None:
    body = frozen(generate(), memory=len(DATA))
    assert send(body) == send(body)
    assert not files


def test_chunks_in_memory_are_kept_by_reference() -> None:
    chunk = bytes(1000)
    body = frozen(iter([chunk]))
    send(body)
    assert next(iter(cast("httpx.SyncByteStream", body.stream()))) is chunk


def test_a_buffer_that_comes_again_and_again_takes_memory_once(files: list[IO[bytes]]) -> None:
    chunk = bytes(1000)
    body = frozen(iter([chunk] * 50), memory=1000)
    assert send(body) == send(body) == chunk * 50
    assert not files


def test_many_tiny_chunks_do_not_take_many_times_their_length(
    monkeypatch: pytest.MonkeyPatch, files: list[IO[bytes]]
) -> None:
    monkeypatch.setattr(_recording, "_MOST_PIECES", 10)
    monkeypatch.setattr(_recording, "_MOST_PENDING", 7)
    chunks = [b"%d" % number for number in range(100)]
    body = frozen(iter(chunks))
    assert send(body) == b"".join(chunks)
    assert len(files) == 1
    assert send(body) == b"".join(chunks)
    body.close()


def test_a_file_is_not_read_into_memory_at_once() -> None:
    body = frozen(iter([bytes(1 << 20)]), memory=0)
    send(body)
    assert {len(chunk) for chunk in cast("httpx.SyncByteStream", body.stream())} == {1 << 16}
    body.close()


def test_a_temporary_file_that_somebody_cut_short_is_no_complete_body(
    files: list[IO[bytes]],
) -> None:
    body = frozen(iter([bytes(1 << 17)]), memory=0)
    send(body)
    files[0].truncate(1000)
    with pytest.raises(OSError, match="cut short"):
        send(body)
    body.close()


@pytest.mark.parametrize("end", ["limit", "failure"])
def test_what_can_not_be_sent_again_is_not_kept(end: str) -> None:
    first = bytes(1000)
    before = sys.getrefcount(first)

    def content() -> Iterator[bytes]:
        yield first
        yield bytes(1000)
        if end == "failure":
            raise ValueError

    body = frozen(content(), limit=1500 if end == "limit" else 5000)
    send(body, 1)
    assert sys.getrefcount(first) > before
    with suppress(ValueError):
        for _ in cast("httpx.SyncByteStream", body.stream()):
            pass
    assert body.obstacle() is not None
    assert sys.getrefcount(first) == before


def test_a_lost_recording_gives_nothing_even_while_its_file_is_open() -> None:
    recording = _recording.Recording(memory=0, limit=3, batch=1, consumed=httpx.StreamConsumed)
    assert recording.keep(b"123")
    recording.flush()
    assert recording.keep(b"4")
    assert recording.has_file
    with pytest.raises(httpx.StreamConsumed):
        recording.read(0)
    recording.flush()
    assert not recording.has_file


@pytest.mark.parametrize("end", ["close", "forget", "limit", "failure"])
def test_the_temporary_file_is_gone_at_the_end(files: list[IO[bytes]], end: str) -> None:
    def content() -> Iterator[bytes]:
        yield bytes(1 << 17)
        yield bytes(1 << 16)
        if end == "failure":
            raise ValueError

    body = frozen(content(), memory=0, limit=1 << 17 if end == "limit" else 1 << 20)
    send(body, 1)
    assert [file.closed for file in files] == [False]
    with suppress(ValueError):
        send(body)
    if end == "forget":
        # The test holds the file open, so forgetting the body can't close it: closing does.
        assert not files[0].closed
        body.close()
    elif end != "limit":
        body.close()
        body.close()
    assert files[0].closed
    if end == "close":
        assert body.obstacle() == "it has been released"


def test_a_forgotten_body_leaves_no_file_behind() -> None:
    body = frozen(iter([bytes(1 << 17)]), memory=0)
    send(body)
    file = cast("Any", body).recording._file
    descriptor = file.fileno()
    del file
    with pytest.warns(ResourceWarning):
        del body
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(descriptor)


@pytest.mark.anyio
@pytest.mark.parametrize("end", ["aclose", "limit", "cancelled"])
async def test_the_temporary_file_of_an_async_body_is_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch, files: list[IO[bytes]], end: str
) -> None:
    monkeypatch.setattr(_recorded, "_BATCH_FOR_THREAD", 1000)
    content = AsyncSequence([bytes(1000)] * 3)
    body = frozen(content, memory=0, limit=2000 if end == "limit" else 1 << 20)
    await asend(body, 1)
    assert [file.closed for file in files] == [False]
    await asend(body)
    if end == "aclose":
        await body.aclose()
        await body.aclose()
    elif end == "cancelled":
        with anyio.CancelScope() as scope:
            scope.cancel()
            await body.aclose()
    assert files[0].closed
    await body.aclose()


@pytest.mark.anyio
async def test_the_event_loop_never_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_recorded, "_BATCH_FOR_THREAD", 1000)
    threads: set[int] = set()

    class File(io.BytesIO):
        def writelines(self, lines: Any) -> None:
            threads.add(threading.get_ident())
            super().writelines(lines)

        def read(self, size: int | None = -1) -> bytes:
            threads.add(threading.get_ident())
            return super().read(size)

        def close(self) -> None:
            threads.add(threading.get_ident())
            super().close()

    def make() -> File:
        threads.add(threading.get_ident())
        return File()

    monkeypatch.setattr(tempfile, "TemporaryFile", make)
    body = frozen(AsyncSequence([bytes(1000)] * 5), memory=0)
    await asend(body)
    await asend(body)
    await body.aclose()
    beyond = frozen(AsyncSequence([bytes(1000)] * 5), memory=0, limit=2500)
    await asend(beyond)
    await beyond.aclose()
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.anyio
async def test_spooling_does_not_depend_on_a_free_worker_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_recorded, "_BATCH_FOR_THREAD", 1)
    body = frozen(AsyncSequence(CHUNKS), memory=0)
    limiter = anyio.to_thread.current_default_thread_limiter()
    before, limiter.total_tokens = limiter.total_tokens, 1
    async with limiter:
        assert await asend(body) == DATA
        assert await asend(body) == DATA
        await body.aclose()
    limiter.total_tokens = before


class FullDisk(io.BytesIO):
    """A file on a disk that is full. What is buffered fails when it is written at last."""

    def flush(self) -> None:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        super().close()
        raise OSError(28, "No space left on device")


def test_an_upload_goes_on_when_the_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    file = FullDisk()
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: file)
    monkeypatch.setattr(_recorded, "_BATCH", 1)
    body = frozen(generate(), memory=5)
    assert send(body) == DATA
    assert file.closed
    assert body.obstacle() == "the temporary file for it can't be written (OSError)"
    with pytest.raises(httpx.StreamConsumed):
        send(body)
    assert body.failure is None


def test_a_full_disk_that_shows_only_at_the_retry_sends_nothing_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", FullDisk)
    body = frozen(generate(), memory=5)
    assert send(body) == DATA
    assert body.obstacle() is None
    with pytest.raises(httpx.StreamConsumed):
        send(body)
    assert body.obstacle() is not None


# --- the caller's own errors -------------------------------------------------------------------


class Broken:
    """An iterator that raises and then looks exhausted, as a generator does."""

    def __init__(self, error: BaseException) -> None:
        self._steps: list[bytes | BaseException] = [b"01", b"23", error]

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if not self._steps:
            raise StopIteration
        step = self._steps.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step


ERRORS = [ValueError("no"), httpx.ReadError("proxied"), httpx.StreamConsumed(), OSError(5, "disk")]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_the_callers_error_passes_untouched_and_the_body_is_never_sent_again(
    error: Exception,
) -> None:
    body = frozen(Broken(error))
    with pytest.raises(type(error)) as raised:
        send(body)
    assert raised.value is error
    assert body.failure is error
    assert body.obstacle() == f"its iterator failed ({type(error).__name__})"
    with pytest.raises(type(error)) as raised:
        send(body)
    assert raised.value is error


@pytest.mark.anyio
@pytest.mark.parametrize("error", ERRORS, ids=repr)
async def test_the_callers_async_error_passes_untouched_and_the_body_is_never_sent_again(
    error: Exception,
) -> None:
    async def content() -> AsyncIterator[bytes]:
        for chunk in Broken(error):
            yield chunk

    body = frozen(content())
    with pytest.raises(type(error)) as raised:
        await asend(body)
    assert raised.value is error
    assert body.failure is error
    assert body.obstacle() == f"its iterator failed ({type(error).__name__})"
    with pytest.raises(type(error)) as raised:
        await asend(body)
    assert raised.value is error


def test_an_error_in_a_later_attempt_is_the_callers_too() -> None:
    body = frozen(Broken(ValueError("no")))
    assert send(body, 2) == b"0123"
    with pytest.raises(ValueError, match="no"):
        send(body)
    assert body.failure is not None


def test_an_interrupt_is_not_the_callers_failure_and_ends_the_body() -> None:
    body = frozen(Broken(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        send(body)
    assert body.failure is None
    assert body.obstacle() == "its iterator was interrupted (KeyboardInterrupt)"
    with pytest.raises(httpx.StreamConsumed):
        send(body)


def test_an_attempt_that_stops_early_is_not_a_failure() -> None:
    body = frozen(generate())
    iterator = iter(cast("httpx.SyncByteStream", body.stream()))
    next(iterator)
    del iterator
    assert body.failure is None
    assert send(body) == DATA


@pytest.mark.anyio
async def test_a_generator_that_was_cancelled_is_never_taken_for_a_complete_body() -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"01"
        await anyio.sleep_forever()
        yield b"23"

    body = frozen(content())
    with anyio.move_on_after(0) as scope:
        await asend(body)
    assert scope.cancelled_caught
    assert body.failure is None
    assert (body.obstacle() or "").startswith("its iterator was interrupted (Cancelled")
    with pytest.raises(httpx.StreamConsumed):
        await asend(body)


@pytest.mark.anyio
async def test_a_cancellation_while_a_chunk_is_written_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_recorded, "_BATCH_FOR_THREAD", 1)
    body = frozen(AsyncSequence(CHUNKS), memory=0)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await asend(body)
    assert scope.cancelled_caught
    assert body.obstacle() is None
    assert await asend(body) == DATA
    await body.aclose()


def test_any_buffer_is_a_chunk() -> None:
    body = frozen(iter([array("B", [49, 50]), memoryview(b"3456")[::2]]))
    assert send(body) == send(body) == b"1235"


def test_a_chunk_that_is_not_bytes_is_the_callers_error() -> None:
    body = frozen(iter(["text"]))
    with pytest.raises(TypeError, match="must be bytes, not str"):
        send(body)
    assert isinstance(body.failure, TypeError)


def test_a_buffer_that_the_caller_fills_anew_is_copied() -> None:
    buffer = bytearray(2)

    def content() -> Iterator[Any]:
        for number in range(4):
            buffer[:] = b"%02d" % number
            yield memoryview(buffer) if number % 2 else buffer
        buffer[:] = b"--"

    body = frozen(content())
    assert send(body) == send(body) == b"00010203"


# --- two readers at once -----------------------------------------------------------------------


def test_two_readers_of_an_iterator_both_get_the_whole_body() -> None:
    body = frozen(generate(), memory=5)
    one, other = (iter(cast("httpx.SyncByteStream", body.stream())) for _ in range(2))
    pairs = list(zip(one, other, strict=True))
    assert b"".join(chunk for chunk, _ in pairs) == DATA
    assert b"".join(chunk for _, chunk in pairs) == DATA
    body.close()


@pytest.mark.parametrize("kind", [SYNC_ONLY[7], MULTIPART[1]], ids=name_of)
def test_the_elder_of_two_readers_of_a_file_fails(kind: Kind) -> None:
    body = freeze(kind.request(), memory=0, limit=0)
    elder = iter(cast("httpx.SyncByteStream", body.stream()))
    next(elder)
    assert send(body) == kind.sent
    with pytest.raises(RuntimeError, match="somebody else"):
        next(elder)
    assert body.failure is None
    assert send(body) == kind.sent


def test_an_iterator_that_sends_its_own_body_is_told_so() -> None:
    def content() -> Iterator[bytes]:
        with pytest.raises(RuntimeError, match="somebody else"):
            send(body)
        yield b"1"

    body = frozen(content())
    assert send(body) == b"1"
    assert send(body) == b"1"


@pytest.mark.anyio
async def test_the_elder_of_two_async_readers_of_a_file_fails() -> None:
    body = freeze(MULTIPART[1].request(), memory=0, limit=0)
    elder = aiter(aiter(cast("httpx.AsyncByteStream", body.stream())))
    await anext(elder)
    assert await asend(body) == MULTIPART[1].sent
    with pytest.raises(RuntimeError, match="somebody else"):
        await anext(elder)


@pytest.mark.anyio
async def test_a_second_task_can_not_tear_an_async_body_in_two() -> None:
    more = anyio.Event()

    async def content() -> AsyncIterator[bytes]:
        yield b"1"
        await more.wait()
        yield b"2"

    body = frozen(content())
    async with anyio.create_task_group() as group:
        sent: list[bytes] = []

        async def upload() -> None:
            sent.append(await asend(body))

        group.start_soon(upload)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="somebody else"):
            await asend(body)
        more.set()
    assert sent == [b"12"]
    assert body.failure is None
    assert await asend(body) == b"12"


# --- files -------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    return path


def test_a_file_on_disk_is_sent_from_where_the_caller_left_it(path: Path) -> None:
    with path.open("rb") as file:
        body = frozen(at(file, 4))
        assert send(body) == DATA[4:]
        assert body.obstacle() is None
        assert send(body) == DATA[4:]
        assert not file.closed
        body.close()
        assert not file.closed
        assert file.tell() == len(DATA)


def _grow(file: Any) -> None:
    file.seek(0, os.SEEK_END)
    file.write(b"more")
    file.flush()


def _overwrite(file: Any) -> None:
    file.seek(0)
    file.write(b"x")
    file.flush()


def _touch(file: Any) -> None:
    os.utime(file.fileno(), ns=(1, 1))


def _grow_unnoticed(file: Any) -> None:
    before = os.fstat(file.fileno())
    _grow(file)
    os.utime(file.fileno(), ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [_grow, _touch, _grow_unnoticed])
def test_a_file_on_disk_that_has_changed_is_not_sent_again(
    path: Path, change: Callable[[Any], None]
) -> None:
    with path.open("r+b") as file:
        body = frozen(file)
        send(body)
        change(file)
        assert body.obstacle() == "its file has changed since attempt 1"


@pytest.mark.parametrize("change", [_grow, _overwrite])
def test_a_file_in_memory_that_has_changed_is_not_sent_again(
    change: Callable[[Any], None],
) -> None:
    file = io.BytesIO(DATA)
    body = frozen(file)
    send(body)
    assert body.obstacle() is None
    change(file)
    assert body.obstacle() == "its file has changed since attempt 1"


def test_a_duck_typed_file_that_has_grown_is_not_sent_again() -> None:
    file = SeekableDuck(DATA)
    body = frozen(file)
    send(body)
    assert body.obstacle() is None
    _grow(file._file)
    assert body.obstacle() == "its file has changed since attempt 1"


def test_a_file_that_was_closed_is_not_sent_again() -> None:
    file = io.BytesIO(DATA)
    body = frozen(file)
    send(body)
    file.close()
    assert body.obstacle() == "its file can't be read again"
    body.close()


def test_a_part_that_has_changed_keeps_multipart_from_being_sent_again() -> None:
    file = io.BytesIO(DATA)
    body = freeze(request(files={"a": b"1", "f": file}), memory=0, limit=0)
    send(body)
    assert body.obstacle() is None
    _overwrite(file)
    assert body.obstacle() == "its file has changed since attempt 1"


def test_what_a_file_raises_is_the_callers_error() -> None:
    class Failing(SeekableDuck):
        def read(self, size: int = -1) -> bytes:
            raise OSError(5, "Input/output error")

    body = frozen(Failing(DATA))
    with pytest.raises(OSError, match="Input/output") as raised:
        send(body)
    assert body.failure is raised.value
    assert body.obstacle() == "reading it failed (OSError)"


class Stuck(SeekableDuck):
    """Says where it is, and stays there."""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int | None:
        return super().seek(0, os.SEEK_CUR)

    def seekable(self) -> bool:
        return False


def test_a_file_that_says_it_can_not_seek_is_believed() -> None:
    body = frozen(Stuck(DATA))
    assert send(body, 1) == send(body) == DATA


def test_a_file_that_knows_its_position_but_can_not_go_back_is_recorded(path: Path) -> None:
    class OneWay(SeekableDuck):
        def seek(self, offset: int, whence: int = os.SEEK_SET) -> None:
            raise OSError(29, "Illegal seek")

        def fileno(self) -> int:
            return file.fileno()

    with path.open("rb") as file:
        body = frozen(OneWay(DATA))
        assert send(body, 1) == send(body) == DATA


def test_a_device_that_can_seek_is_not_taken_for_a_file() -> None:
    class Device(SeekableDuck):
        def __init__(self) -> None:
            super().__init__(b"")
            self._device = open(os.devnull, "rb")  # noqa: SIM115 - closed by the test
            self.readings = 0

        def fileno(self) -> int:
            return self._device.fileno()

        def read(self, size: int = -1) -> bytes:
            self.readings += 1
            return b"%d" % self.readings if self.readings % 3 else b""

    device = Device()
    with device._device:
        body = frozen(device)
        assert send(body) == send(body) == b"12"


@pytest.mark.parametrize("kind", SYNC_KINDS, ids=name_of)
def test_a_file_is_left_where_plain_httpx_leaves_it_and_open(kind: Kind) -> None:
    def file_of(original: httpx.Request) -> Any:
        return (BEHIND.files(original.stream) or [BEHIND.content(original.stream)])[0]

    plain, ours = kind.request(), kind.request()
    take(plain.stream)
    body = freeze(ours, memory=5, limit=1 << 20)
    send(body, 1)
    send(body)
    body.close()
    if isinstance(file_of(ours), io.IOBase):
        assert not cast("Any", file_of(ours)).closed
        assert file_of(ours).seekable() is file_of(plain).seekable()
        if file_of(plain).seekable():
            assert file_of(ours).tell() == file_of(plain).tell()


@pytest.mark.parametrize("position", [0, 4, len(DATA), len(DATA) + 1])
def test_the_length_of_a_file_is_announced_from_its_position(position: int) -> None:
    original = request(content=at(io.BytesIO(DATA), position))
    body = freeze(original, memory=0, limit=0)
    ours, theirs = body.content_length, int(original.headers["Content-Length"])
    assert (theirs if ours is None else ours) == len(send(body))
    if NAME == "httpx":
        assert body.content_length == (None if position == 0 else max(len(DATA) - position, 0))
        assert original.headers["Content-Length"] == str(len(DATA))
    else:  # mended there
        assert body.content_length is None


@pytest.mark.parametrize("headers", [{"Content-Length": "3"}, {"Transfer-Encoding": "chunked"}])
def test_a_length_that_the_caller_announces_stays(headers: dict[str, str]) -> None:
    original = httpx.Request(
        "PUT",
        "http://test/",
        headers=headers,
        stream=request(content=at(io.BytesIO(DATA), 4)).stream,
    )
    assert freeze(original, memory=0, limit=0).content_length is None


# --- the same stream in the next logical request -----------------------------------------------


def hop(stream: object) -> Body:
    """What httpx makes of a redirect: a new request with the old stream."""
    return freeze(request(stream=stream), memory=1 << 20, limit=1 << 20)


@pytest.mark.parametrize("kind", [SYNC_ONLY[7], SYNC_ONLY[8], SYNC_ONLY[10]], ids=name_of)
@pytest.mark.parametrize("cut", [0, 1, None])
def test_a_file_is_sent_whole_again_after_a_redirect(kind: Kind, cut: int | None) -> None:
    stream = kind.request().stream
    first = hop(stream)
    send(first, cut)
    first.close()
    second = hop(stream)
    assert send(second) == send(second) == kind.sent
    second.close()


def test_a_file_that_the_caller_moved_is_sent_from_there() -> None:
    file = io.BytesIO(DATA)
    stream = request(content=file).stream
    first = hop(stream)
    send(first)
    first.close()
    file.seek(6)
    assert send(hop(stream)) == DATA[6:]


@pytest.mark.parametrize(
    "kind",
    [kind for kind in SYNC_ONLY if kind.name in ONE_SHOT] + [MULTIPART[3], MULTIPART[4]],
    ids=name_of,
)
@pytest.mark.parametrize("cut", [1, None])
def test_an_iterator_that_an_earlier_request_has_read_fails_instead_of_sending_less(
    kind: Kind, cut: int | None
) -> None:
    original = kind.request()
    send(hop(original.stream), cut)
    second = hop(original.stream)
    with pytest.raises(httpx.StreamConsumed) as raised:
        send(second)
    assert second.failure is raised.value
    assert second.obstacle() is not None


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [ASYNC_ONLY[0], ASYNC_ONLY[1], ASYNC_ONLY[3]], ids=name_of)
async def test_an_async_iterator_that_an_earlier_request_has_read_fails_too(kind: Kind) -> None:
    original = kind.request()
    await asend(hop(original.stream))
    with pytest.raises(httpx.StreamConsumed):
        await asend(hop(original.stream))


def test_an_iterator_that_no_earlier_request_has_touched_is_sent() -> None:
    stream = request(content=iter(CHUNKS)).stream
    hop(stream).close()
    assert send(hop(stream)) == DATA


# --- a layer inside another --------------------------------------------------------------------


@pytest.mark.parametrize("kind", SYNC_KINDS, ids=name_of)
def test_an_inner_layer_leaves_the_body_to_the_outer_one(kind: Kind) -> None:
    outer = freeze(kind.request(), memory=5, limit=1 << 20)
    inner = freeze(request(stream=outer.stream()), memory=0, limit=0)
    send(inner, 1)
    assert send(inner) == kind.sent
    inner.close()
    assert inner.obstacle() is None
    assert send(outer) == kind.sent
    outer.close()


def test_an_inner_layer_knows_of_the_callers_error_and_of_the_limit() -> None:
    error = ValueError("no")
    outer = frozen(Broken(error))
    inner = freeze(request(stream=outer.stream()), memory=0, limit=0)
    with pytest.raises(ValueError, match="no"):
        send(inner)
    assert inner.failure is error
    assert inner.obstacle() == "its iterator failed (ValueError)"


# --- release -----------------------------------------------------------------------------------


def test_an_upload_that_goes_on_after_the_answer_is_not_disturbed() -> None:
    body = frozen(generate(), memory=0)
    iterator = iter(cast("httpx.SyncByteStream", body.stream()))
    first = next(iterator)
    body.close()
    assert first + b"".join(iterator) == DATA


@pytest.mark.anyio
async def test_an_async_upload_that_goes_on_after_the_answer_is_not_disturbed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_recorded, "_BATCH_FOR_THREAD", 1)
    body = frozen(agenerate(), memory=0)
    iterator = aiter(cast("httpx.AsyncByteStream", body.stream()))
    first = await anext(iterator)
    await body.aclose()
    assert first + b"".join([chunk async for chunk in iterator]) == DATA


# --- what httpx keeps to itself ----------------------------------------------------------------


def test_httpx_still_shows_what_a_request_was_made_of() -> None:
    """The alarm: httpx has changed when this fails, and bodies are recorded that need not be."""
    sync, asynchronous = iter(CHUNKS), AsyncSequence(CHUNKS)
    file = io.BytesIO()
    assert BEHIND.content(request(content=sync).stream) is sync
    assert BEHIND.content(request(content=asynchronous).stream) is asynchronous
    multipart = request(files={"f": file, "b": b"1", "t": "1"}, data={"d": "1", "n": 1}).stream
    assert BEHIND.is_multipart(multipart)
    assert BEHIND.files(multipart) == [file]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("_stream", SYNC_ONLY[7]), ("_stream", SYNC_ONLY[0])]
    + [("fields", kind) for kind in MULTIPART],
)
def test_a_body_is_recorded_where_httpx_no_longer_shows_it(
    monkeypatch: pytest.MonkeyPatch, name: str, kind: Kind
) -> None:
    original = kind.request()
    chunks = list(cast("httpx.SyncByteStream", kind.request().stream))
    stream: Any = type("Changed", (httpx.SyncByteStream,), {"__iter__": lambda _: iter(chunks)})()
    for attribute in ("_iterator", "_multipart"):
        if type(original.stream) is getattr(BEHIND, attribute):
            monkeypatch.setattr(BEHIND, attribute, type(stream))
    assert not hasattr(stream, name)
    body = hop(stream)
    assert send(body, 1) == chunks[0]
    assert send(body) == send(body) == kind.sent


def test_a_part_of_a_new_kind_makes_multipart_unknown() -> None:
    stream = cast("Any", MULTIPART[0].request().stream)
    stream.fields.append(object())
    assert BEHIND.files(stream) is None


def test_a_stream_of_the_callers_own_is_none_of_httpxs() -> None:
    stream = OnceStream(CHUNKS)
    cast("Any", stream)._stream = io.BytesIO()
    assert BEHIND.content(stream) is None
    assert BEHIND.files(stream) is None
