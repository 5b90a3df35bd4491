"""What passed of a one-shot body: recorded while it is sent, read again by a retry.

The rule: what an attempt sends is the body from its first byte, or the attempt fails loudly.
Nothing is read ahead, and nothing that came out of the caller's iterator is lost: a chunk is kept
before it is handed on, so an attempt may stop anywhere and the next one goes on from there.

    caller's iterator --> pieces (references) --> pending (on its way) --> a temporary file

The first `memory` bytes stay as references to the caller's own chunks. Whatever follows goes to the
file in batches. Beyond `limit` bytes, or where the file can't be written, all of it is dropped:
the upload goes on, and the body can't be sent again.

A recording does no waiting of its own: `flush`, `read` and `close` block on the disk, and the async
side calls them in a thread.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from typing import IO

# One read of the file: what httpx itself reads from a file at a time.
_READ = 1 << 16

# Every reference and every object that holds a chunk costs memory too, at most some 100 bytes.
# A body in many tiny chunks would otherwise take many times its length.
_MOST_PIECES = 1 << 14
_MOST_PENDING = 1 << 10


class Recording:
    """The bytes of one body that have passed so far.

    `total`: how many those are. `lost`: why they can't be read again, None while they can.
    `batch`: how many bytes wait for the file before `keep` asks for `flush`. `consumed`: the error
    of whoever reads what is lost.
    """

    __slots__ = (
        "_batch",
        "_charged",
        "_consumed",
        "_disk",
        "_file",
        "_held",
        "_limit",
        "_memory",
        "_on_file",
        "_pending",
        "_pending_size",
        "_pieces",
        "lost",
        "total",
    )

    def __init__(self, memory: int, limit: int, batch: int, consumed: type[Exception]) -> None:
        self.total = 0
        self.lost: str | None = None
        self._memory = memory
        self._limit = limit
        self._batch = batch
        self._consumed = consumed
        self._pieces: list[bytes] = []
        self._held = 0  # their length
        self._charged = 0  # what they take of `memory`
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._disk = threading.Lock()  # an upload may still be going on when the body is closed
        self._file: IO[bytes] | None = None
        self._on_file = 0

    def keep(self, chunk: bytes) -> bool:
        """Add the next chunk. True: it is time to `flush`."""
        size = len(chunk)
        self.total += size
        if self.lost is not None:
            return False
        if self.total > self._limit:
            self.lose(f"it is longer than replay_limit ({self._limit} bytes)")
            return self._file is not None
        if self._held + size == self.total and self._fits(chunk):
            self._pieces.append(chunk)
            self._held += size
            return False
        self._pending.append(chunk)
        self._pending_size += size
        return self._pending_size >= self._batch or len(self._pending) >= _MOST_PENDING

    def _fits(self, chunk: bytes) -> bool:
        # The very object that came last (padding, one buffer sent many times) is in memory already.
        charge = 0 if self._pieces and chunk is self._pieces[-1] else len(chunk)
        if self._charged + charge > self._memory or len(self._pieces) >= _MOST_PIECES:
            return False
        self._charged += charge
        return True

    def piece(self, index: int) -> bytes | None:
        """The chunk with this index, if it is in memory and not on its way to the file."""
        return self._pieces[index] if index < len(self._pieces) else None

    @property
    def pieces(self) -> int:
        """How many chunks `piece` knows."""
        return len(self._pieces)

    def read(self, position: int) -> bytes:
        """Some of the bytes from `position` on, which lies beyond the pieces and before `total`.

        Raises `consumed` when they are lost.
        """
        with self._disk:
            offset = position - self._held
            if offset >= self._on_file:
                self._write()
            if self._file is None or self.lost is not None:
                raise self._consumed
            self._file.seek(offset)
            data = self._file.read(_READ)
            if not data:
                raise OSError("the temporary file of a request body has been cut short")
            return data

    def flush(self) -> None:
        """Write what is pending to the file, or close the file when the recording is lost."""
        with self._disk:
            self._write()

    def _write(self) -> None:
        if self.lost is not None:
            self._drop_file()
            return
        try:
            if self._file is None:
                self._file = _new_file()
            self._file.seek(self._on_file)
            self._file.writelines(self._pending)
            self._file.flush()
        except OSError as exc:
            # A full disk is no reason to break off an upload that goes well.
            self.lose(f"the temporary file for it can't be written ({type(exc).__name__})")
            self._drop_file()
            return
        self._on_file += self._pending_size
        self._pending = []
        self._pending_size = 0

    def lose(self, why: str) -> None:
        """Let go of all that is in memory. The file, if any, stays for `flush` or `close`."""
        self.lost = why
        self._pieces = []
        self._pending = []
        self._pending_size = 0

    def close(self) -> None:
        """Let go of everything, the temporary file included."""
        if self.lost is None:
            self.lose("it has been released")
        with self._disk:
            self._drop_file()

    @property
    def has_file(self) -> bool:
        """Whether `close` has a file to close."""
        return self._file is not None

    def _drop_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            # On a full disk closing fails once more, and closes nevertheless.
            with contextlib.suppress(OSError):
                file.close()


def _new_file() -> IO[bytes]:
    return tempfile.TemporaryFile()
