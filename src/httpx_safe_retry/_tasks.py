"""The driver for tasks: it carries out what the engine asks for.

Its twin is `_threads.py`, which says how they are held equal.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

import anyio

from ._base import Base, around, leave
from ._deadline import current as current_block
from ._deadline import of_task
from ._engine import LogicalRequest, Raise, Wait
from ._rest import aclose, adiscard, aread_rest, is_short
from ._wrapped import Made

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Self


class InTasks(Base):
    """Sends requests in the task that asks for it, on asyncio or trio."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, again if need be. See the class for what is returned and raised."""
        wrapped = self._wrapped.asynchronous or self._wrapped.for_tasks()
        at_once, frozen = self._at_once, None
        if at_once is not None and not around.get() and current_block() is None:
            frozen = at_once.start(request, asynchronous=True)
        if at_once is None or frozen is None:
            return await self._adrive(wrapped, self._begin(request, of_task), None)
        now, closing = self._clock.monotonic, self._closing
        began = now()
        under_way = [frozen.outgoing]
        token = around.set(under_way)
        response = None
        try:
            response = await wrapped.handle_async_request(frozen.outgoing)
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
                    await aread_rest(library, response)
            except BaseException as raised:
                error = raised
            else:
                at_once.attach(response, frozen, now() - began)
                return response
        made = Made(frozen.outgoing, response, error)
        del error  # its traceback leads here
        return await self._adrive(wrapped, self._take_up(frozen, began, closing, response), made)

    async def _adrive(
        self, wrapped: httpx.AsyncBaseTransport, call: LogicalRequest, made: Made | None
    ) -> httpx.Response:
        """Carry out what the engine asks for. `made`: the first attempt, if it was made already."""
        now = self._clock.monotonic
        exchange = self._aexchange if call.allowed is None else self._abounded_exchange
        try:
            outgoing = call.start(asynchronous=True) if made is None else made.outgoing
            wait: Wait | None
            while True:
                try:
                    response = await exchange(made or wrapped, call, outgoing)
                except BaseException as error:
                    wait = await self._afailed(call, error)
                    if wait is None:
                        raise
                else:
                    if call.succeeded(response, now()):
                        return response
                    wait = await self._aanswered(call, response)
                    if wait is None:
                        return response
                await self._apause(call, wait)
                outgoing, made = call.again(now()), None
        except BaseException as error:
            call.broke_off(error, now())
            raise
        finally:
            call.release()
            if call.body is not None:
                with anyio.CancelScope(shield=True):
                    await call.body.aclose()

    async def _aexchange(
        self,
        wrapped: httpx.AsyncBaseTransport | Made,
        call: LogicalRequest,
        outgoing: httpx.Request,
    ) -> httpx.Response:
        library = self._library
        under_way = [outgoing]
        token = around.set(under_way)
        try:
            call.answer = response = await wrapped.handle_async_request(outgoing)
        finally:
            leave(under_way, token)
        if is_short(library, outgoing.method, response, call.prefetch(response.status_code)):
            call.read = await aread_rest(library, response)
        return response

    async def _abounded_exchange(
        self,
        wrapped: httpx.AsyncBaseTransport | Made,
        call: LogicalRequest,
        outgoing: httpx.Request,
    ) -> httpx.Response:
        # Timeouts hold for one operation on the socket each; only a task can be ended as a whole.
        ended: BaseException | None = None
        with anyio.move_on_after(call.remaining):
            try:
                return await self._aexchange(wrapped, call, outgoing)
            except BaseException as error:
                ended = error  # what the deadline cut off: the trace knows it again
                raise
        raise self._library.read_timeout("the deadline ended the attempt") from ended

    async def _aanswered(self, call: LogicalRequest, response: httpx.Response) -> Wait | None:
        left = of_task()
        try:
            step = call.answered(response, self._clock.monotonic(), self._clock.time(), left)
        except BaseException:
            await aclose(response)
            raise
        if step is None:
            return None
        now, ends = self._clock.monotonic, call.spare_until(step)
        call.discarded(await adiscard(self._library, call.method, response, ends, now))
        if isinstance(step, Raise):
            raise call.error(step.report)
        return step

    async def _afailed(self, call: LogicalRequest, error: BaseException) -> Wait | None:
        if call.answer is not None:
            await aclose(call.answer)
        # A coroutine may be closed where there is no event loop any more to ask.
        left = of_task() if isinstance(error, Exception) else 0.0
        step = call.failed(error, self._clock.monotonic(), self._clock.time(), left)
        if isinstance(step, Raise):
            raise call.error(step.report) from error
        return step

    async def _apause(self, call: LogicalRequest, wait: Wait) -> None:
        began = self._clock.monotonic()
        try:
            await self._clock.asleep(wait.delay)
        finally:
            call.waited(self._clock.monotonic() - began)

    async def __aenter__(self) -> Self:
        if self._wrapped.asynchronous is not None:
            await self._wrapped.asynchronous.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self._wake_waits()
        if self._wrapped.asynchronous is not None:
            await self._wrapped.asynchronous.__aexit__(exc_type, exc_value, traceback)

    async def aclose(self) -> None:
        """Close what is wrapped. A wait of another task goes on, but no attempt follows it."""
        self._wake_waits()
        if self._wrapped.asynchronous is not None:
            await self._wrapped.asynchronous.aclose()
