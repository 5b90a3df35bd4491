"""Any body, cut anywhere, any number of times: an attempt sends the original or there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from httpx_safe_retry import _recorded, _recording
from httpx_safe_retry._body import freeze as freeze_of
from tests.library import LIBRARY, httpx

from .bodies import (
    AsyncOnceStream,
    AsyncSequence,
    DualOnceStream,
    OnceStream,
    agenerate,
    asend,
    generate,
    send,
)

freeze = partial(freeze_of, LIBRARY)


@dataclass(frozen=True)
class Upload:
    """A one-shot body, what may be kept of it, and after how many chunks each attempt is cut.

    `sizes`: how much the recording moves at a time, and how many chunks it holds, made small
    enough that a few bytes meet every border.
    """

    chunks: list[bytes]
    memory: int
    limit: int
    cuts: list[int | None]
    sizes: tuple[int, int, int, int]

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)


uploads = st.builds(
    Upload,
    chunks=st.lists(st.binary(max_size=20), max_size=12),
    memory=st.integers(0, 60),
    limit=st.integers(0, 150),
    cuts=st.lists(st.none() | st.integers(0, 15), min_size=1, max_size=6),
    sizes=st.tuples(*[st.integers(1, 30)] * 4),
)


@contextmanager
def moving(sizes: tuple[int, int, int, int]) -> Iterator[None]:
    batch, read, pieces, pending = sizes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_recorded, "_BATCH", batch)
        patch.setattr(_recorded, "_BATCH_FOR_THREAD", batch)
        patch.setattr(_recording, "_READ", read)
        patch.setattr(_recording, "_MOST_PIECES", pieces)
        patch.setattr(_recording, "_MOST_PENDING", pending)
        yield


def check(upload: Upload, sent: bytes, cut: int | None) -> None:
    """An attempt that was not cut sends everything; a cut one, a beginning of it."""
    if cut is None:
        assert sent == upload.data
    else:
        assert upload.data.startswith(sent)
        # A recorded piece may be longer or shorter than a chunk, but never missing.
        assert cut == 0 or bool(sent) == bool(upload.data) or not any(upload.chunks[:cut])


class Caller:
    """Counts what has been taken from the caller's chunks."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks
        self.taken = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.taken += len(chunk)
            yield chunk


@pytest.mark.parametrize("make", [generate, iter, OnceStream, DualOnceStream])
@given(upload=uploads)
def test_every_attempt_sends_the_original_or_there_is_none(
    make: Callable[[Any], Any], upload: Upload
) -> None:
    caller = Caller(upload.chunks)
    with moving(upload.sizes):
        body = freeze(_request(make(caller)), memory=upload.memory, limit=upload.limit)
        for cut in upload.cuts:
            # It can be sent again exactly as long as what was taken lies within the limit.
            assert (body.obstacle() is None) == (caller.taken <= upload.limit)
            if body.obstacle() is None:
                check(upload, send(body, cut), cut)
            else:
                with pytest.raises(httpx.StreamConsumed):
                    send(body)
        assert body.failure is None
        body.close()


# An upload that is given up leaves a generator behind, of httpx or of the caller. trio says so; it
# does with plain httpx too.
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("make", [agenerate, AsyncSequence, AsyncOnceStream, DualOnceStream])
@given(upload=uploads)
def test_every_async_attempt_sends_the_original_or_there_is_none(
    make: Callable[[Any], Any], backend: str, upload: Upload
) -> None:
    caller = Caller(upload.chunks)

    async def attempts() -> None:
        body = freeze(_request(make(caller)), memory=upload.memory, limit=upload.limit)
        for cut in upload.cuts:
            assert (body.obstacle() is None) == (caller.taken <= upload.limit)
            if body.obstacle() is None:
                check(upload, await asend(body, cut), cut)
            else:
                with pytest.raises(httpx.StreamConsumed):
                    await asend(body)
        assert body.failure is None
        await body.aclose()

    with moving(upload.sizes):
        anyio.run(attempts, backend=backend)


@given(upload=uploads, turns=st.lists(st.booleans(), max_size=40))
def test_two_readers_in_any_order_both_get_the_original(upload: Upload, turns: list[bool]) -> None:
    with moving(upload.sizes):
        body = freeze(_request(generate(upload.chunks)), memory=upload.memory, limit=1 << 20)
        readers = [iter(cast("httpx.SyncByteStream", body.stream())) for _ in range(2)]
        got = [b"", b""]
        for turn in turns:
            got[turn] += next(readers[turn], b"")
        for number, reader in enumerate(readers):
            assert got[number] + b"".join(reader) == upload.data
        body.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(upload=uploads, turns=st.lists(st.booleans(), max_size=40))
def test_two_async_readers_in_any_order_both_get_the_original(
    backend: str, upload: Upload, turns: list[bool]
) -> None:
    async def read() -> None:
        body = freeze(_request(agenerate(upload.chunks)), memory=upload.memory, limit=1 << 20)
        readers = [aiter(cast("httpx.AsyncByteStream", body.stream())) for _ in range(2)]
        got = [b"", b""]
        for turn in turns:
            got[turn] += await anext(readers[turn], b"")
        for number, reader in enumerate(readers):
            assert got[number] + b"".join([chunk async for chunk in reader]) == upload.data
        await body.aclose()

    with moving(upload.sizes):
        anyio.run(read, backend=backend)


def _request(content: Any) -> httpx.Request:
    if isinstance(content, (httpx.SyncByteStream, httpx.AsyncByteStream)):
        return httpx.Request("PUT", "http://test/", stream=content)
    return httpx.Request("PUT", "http://test/", content=content)
