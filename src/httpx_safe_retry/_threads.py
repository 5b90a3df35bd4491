"""The driver for threads: it carries out what the engine asks for.

Its twin is `_tasks.py`: a test holds both equal after a handful of renames. What only one of them
needs stands in functions of its own, or is written down in that test.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from ._base import Base, around, leave
from ._deadline import current as current_block
from ._deadline import of_thread
from ._engine import LogicalRequest, Raise, Wait
from ._rest import close, discard, is_short, read_rest
from ._wrapped import Made

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Self


class InThreads(Base):
    """Sends requests in the thread that asks for it."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, again if need be. See the class for what is returned and raised."""
        wrapped = self._wrapped.sync or self._wrapped.for_threads()
        at_once, frozen = self._at_once, None
        if at_once is not None and not around.get() and current_block() is None:
            frozen = at_once.start(request, asynchronous=False)
        if at_once is None or frozen is None:
            return self._drive(wrapped, self._begin(request, of_thread), None)
        now, closing = self._clock.monotonic, self._closing
        began = now()
        under_way = [frozen.outgoing]
        token = around.set(under_way)
        response = None
        try:
            response = wrapped.handle_request(frozen.outgoing)
        except BaseException as raised:
            error: BaseException | None = raised
        else:
            error = None
        finally:
            leave(under_way, token)
        if response is not None and at_once.is_success(response):
            library = self._library
            try:
                if is_short(library, frozen.method, response, at_once.prefetch):
                    read_rest(library, response, None, None, now)
            except BaseException as raised:
                error = raised
            else:
                at_once.attach(response, frozen, now() - began)
                return response
        made = Made(frozen.outgoing, response, error)
        del error  # its traceback leads here
        return self._drive(wrapped, self._take_up(frozen, began, closing, response), made)

    def _drive(
        self, wrapped: httpx.BaseTransport, call: LogicalRequest, made: Made | None
    ) -> httpx.Response:
        """Carry out what the engine asks for. `made`: the first attempt, if it was made already."""
        now = self._clock.monotonic
        exchange = self._exchange
        try:
            outgoing = call.start(asynchronous=False) if made is None else made.outgoing
            wait: Wait | None
            while True:
                try:
                    response = exchange(made or wrapped, call, outgoing)
                except BaseException as error:
                    wait = self._failed(call, error)
                    if wait is None:
                        raise
                else:
                    if call.succeeded(response, now()):
                        return response
                    wait = self._answered(call, response)
                    if wait is None:
                        return response
                self._pause(call, wait)
                outgoing, made = call.again(now()), None
        except BaseException as error:
            call.broke_off(error, now())
            raise
        finally:
            call.release()
            if call.body is not None:
                call.body.close()

    def _exchange(
        self,
        wrapped: httpx.BaseTransport | Made,
        call: LogicalRequest,
        outgoing: httpx.Request,
    ) -> httpx.Response:
        library = self._library
        under_way = [outgoing]
        token = around.set(under_way)
        try:
            call.answer = response = wrapped.handle_request(outgoing)
        finally:
            leave(under_way, token)
        if is_short(library, outgoing.method, response, call.prefetch(response.status_code)):
            call.read = read_rest(
                library, response, call.timeouts, call.ends, self._clock.monotonic
            )
        return response

    def _answered(self, call: LogicalRequest, response: httpx.Response) -> Wait | None:
        left = of_thread()
        try:
            step = call.answered(response, self._clock.monotonic(), self._clock.time(), left)
        except BaseException:
            close(response)
            raise
        if step is None:
            return None
        now, ends = self._clock.monotonic, call.spare_until(step)
        call.discarded(
            discard(
                self._library,
                call.method,
                response,
                call.sent_timeouts,
                call.timeouts is not None,
                ends,
                now,
            )
        )
        if isinstance(step, Raise):
            raise call.error(step.report)
        return step

    def _failed(self, call: LogicalRequest, error: BaseException) -> Wait | None:
        if call.answer is not None:
            close(call.answer)
        # A coroutine may be closed where there is no event loop any more to ask.
        left = of_thread() if isinstance(error, Exception) else 0.0
        step = call.failed(error, self._clock.monotonic(), self._clock.time(), left)
        if isinstance(step, Raise):
            raise call.error(step.report) from error
        return step

    def _pause(self, call: LogicalRequest, wait: Wait) -> None:
        began = self._clock.monotonic()
        try:
            self._clock.sleep(wait.delay, call.wake)
        finally:
            call.waited(self._clock.monotonic() - began)

    def __enter__(self) -> Self:
        if self._wrapped.sync is not None:
            self._wrapped.sync.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._wake_waits()
        if self._wrapped.sync is not None:
            self._wrapped.sync.__exit__(exc_type, exc_value, traceback)

    def close(self) -> None:
        """End the waits of other threads, whose requests are then cancelled, and close."""
        self._wake_waits()
        if self._wrapped.sync is not None:
            self._wrapped.sync.close()
