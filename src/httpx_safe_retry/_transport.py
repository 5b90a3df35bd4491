"""The two drivers of every `RetryTransport`: they carry out what the engine asks for.

`handle_request` and `handle_async_request` are twins: a test holds them equal after a handful of
renames. What only one of them needs stands in functions of its own. No HTTP library is imported:
each has a transport of its own that is made of this one (`_for_httpx.py`, `httpx2.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import replace
from random import random as _system_random
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import anyio

from ._at_once import AtOnce
from ._backoff import Random
from ._body import freeze
from ._budget import Budget, RetryBudget
from ._checks import check_methods
from ._clock import Clock, SystemClock
from ._course import Setting
from ._deadline import current as current_block
from ._deadline import of_task, of_thread, remaining_of
from ._engine import LogicalRequest, Raise, Wait
from ._events import Listener, Observers
from ._frozen import FrozenRequest
from ._library import Library
from ._policy import RetryPolicy, Terms, terms_for
from ._rest import aclose, adiscard, aread_rest, close, discard, is_short, read_rest
from ._wrapped import Made, Wrapped, warn_of_retries_inside

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Self

_around: ContextVar[list[bool] | None] = ContextVar("httpx_safe_retry_around", default=None)
"""The attempt that this thread or task is in, so that layers don't multiply: a list that is emptied
when the attempt is over. Tasks that were started in one carry it with them for as long as they
live, so that it knows nothing of its request.
"""

_NO_OVERRIDE = object()


class Driver:
    """Sends requests of one library, again if need be."""

    _library: ClassVar[Library]

    def __init__(
        self,
        transport: object,
        *,
        policy: RetryPolicy | Callable[[Any], RetryPolicy],
        budget: Budget | Literal["own"] | None,
        listeners: Iterable[Listener],
        clock: Clock | None,
        random: Random | None,
    ) -> None:
        if not (isinstance(policy, RetryPolicy) or callable(policy)):
            raise TypeError(f"policy must be a RetryPolicy or a callable, not {policy!r}")
        if budget is not None and budget != "own":
            check_methods("budget", budget, "deposit", "withdraw")
        if clock is not None:
            check_methods("clock", clock, "monotonic", "time", "sleep", "asleep")
        if random is not None and not callable(random):
            raise TypeError(f"random must be a callable, not {random!r}")
        self._policy = policy
        self._terms = Terms(policy) if isinstance(policy, RetryPolicy) else None
        self._clock = SystemClock() if clock is None else clock
        self._setting = Setting(
            random=_system_random if random is None else random,
            budget=RetryBudget() if budget == "own" else budget,
            observers=Observers(listeners),
        )
        self._wrapped = Wrapped(self._library, transport)
        self._at_once = None
        if self._terms is not None and AtOnce.suits(self._terms.policy) and not listeners:
            self._at_once = AtOnce(self._library, self._terms, self._setting.budget)
        warn_of_retries_inside(transport)
        self._closing = threading.Event()

    # One logical request, in a thread -------------------------------------------------------------

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, again if need be. See the class for what is returned and raised."""
        wrapped = self._wrapped.sync or self._wrapped.for_threads()
        at_once, frozen = self._at_once, None
        if at_once is not None and not _around.get() and current_block() is None:
            frozen = at_once.start(request, asynchronous=False)
        if at_once is None or frozen is None:
            return self._drive(wrapped, self._begin(request, of_thread), None)
        now, closing = self._clock.monotonic, self._closing
        began = now()
        under_way = [True]
        token = _around.set(under_way)
        response = None
        try:
            response = wrapped.handle_request(frozen.outgoing)
        except BaseException as raised:
            error: BaseException | None = raised
        else:
            error = None
        finally:
            under_way.clear()
            _around.reset(token)
        if response is not None and at_once.is_success(response):
            error = self._read_at_once(at_once, frozen.method, response)
            if error is None:
                at_once.attach(response, frozen, now() - began)
                return response
        made = Made(frozen.outgoing, response, error)
        del error  # its traceback leads here
        return self._drive(wrapped, self._take_up(frozen, began, closing, response), made)

    def _read_at_once(
        self, at_once: AtOnce, method: str, response: httpx.Response
    ) -> BaseException | None:
        """Read a short answer; return what that raised."""
        try:
            if is_short(self._library, method, response, at_once.prefetch):
                read_rest(self._library, response, None, None, self._clock.monotonic)
        except BaseException as error:
            return error
        return None

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
        under_way = [True]
        token = _around.set(under_way)
        try:
            call.answer = response = wrapped.handle_request(outgoing)
        finally:
            under_way.clear()
            _around.reset(token)
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
        call.discarded(
            discard(
                self._library,
                call.method,
                response,
                call.sent_timeouts,
                call.timeouts is not None,
                self._clock.monotonic,
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

    # One logical request, in a task ---------------------------------------------------------------

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, again if need be. See the class for what is returned and raised."""
        wrapped = self._wrapped.asynchronous or self._wrapped.for_tasks()
        at_once, frozen = self._at_once, None
        if at_once is not None and not _around.get() and current_block() is None:
            frozen = at_once.start(request, asynchronous=True)
        if at_once is None or frozen is None:
            return await self._adrive(wrapped, self._begin(request, of_task), None)
        now, closing = self._clock.monotonic, self._closing
        began = now()
        under_way = [True]
        token = _around.set(under_way)
        response = None
        try:
            response = await wrapped.handle_async_request(frozen.outgoing)
        except BaseException as raised:
            error: BaseException | None = raised
        else:
            error = None
        finally:
            under_way.clear()
            _around.reset(token)
        if response is not None and at_once.is_success(response):
            error = await self._aread_at_once(at_once, frozen.method, response)
            if error is None:
                at_once.attach(response, frozen, now() - began)
                return response
        made = Made(frozen.outgoing, response, error)
        del error  # its traceback leads here
        return await self._adrive(wrapped, self._take_up(frozen, began, closing, response), made)

    async def _aread_at_once(
        self, at_once: AtOnce, method: str, response: httpx.Response
    ) -> BaseException | None:
        """Read a short answer; return what that raised."""
        try:
            if is_short(self._library, method, response, at_once.prefetch):
                await aread_rest(self._library, response)
        except BaseException as error:
            return error
        return None

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
        under_way = [True]
        token = _around.set(under_way)
        try:
            call.answer = response = await wrapped.handle_async_request(outgoing)
        finally:
            under_way.clear()
            _around.reset(token)
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
        with anyio.move_on_after(call.remaining):
            return await self._aexchange(wrapped, call, outgoing)
        raise self._library.read_timeout("the deadline ended the attempt")

    async def _aanswered(self, call: LogicalRequest, response: httpx.Response) -> Wait | None:
        left = of_task()
        try:
            step = call.answered(response, self._clock.monotonic(), self._clock.time(), left)
        except BaseException:
            await aclose(response)
            raise
        if step is None:
            return None
        call.discarded(await adiscard(self._library, call.method, response))
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

    # What both share ------------------------------------------------------------------------------

    def _begin(self, request: httpx.Request, task_left: Callable[[], float]) -> LogicalRequest:
        library = self._library
        if not isinstance(request, library.request):
            library.refuse_request(request)
        terms = self._terms_of(request)
        if _around.get():
            # Layers multiply: three that send three times each send 27 requests. The outermost
            # decides.
            terms = replace(terms, passive=True)
        policy = terms.policy
        allowed = policy.deadline if terms.enabled else None
        block = current_block()
        if block is not None:
            left = remaining_of(block)
            allowed = left if allowed is None else min(allowed, left)
        body = None
        if type(request.stream) is not library.byte_stream:
            limit = policy.replay_limit if terms.limit > 1 else 0
            body = freeze(library, request, memory=policy.replay_memory, limit=limit)
        now = self._clock.monotonic()
        frozen = FrozenRequest(request)
        call = LogicalRequest(self._setting, terms, frozen, body, now, allowed, self._closing)
        if policy.deadline_header is not None:
            call.task_ends = now + task_left()
        return call

    def _take_up(
        self,
        frozen: FrozenRequest,
        began: float,
        closing: threading.Event,
        answer: httpx.Response | None,
    ) -> LogicalRequest:
        """Let the engine go on with a request that was sent as it is."""
        assert self._terms is not None
        call = LogicalRequest(self._setting, self._terms, frozen, None, began, None, closing)
        call.sent = True
        call.answer = answer
        return call

    def _terms_of(self, request: httpx.Request) -> Terms:
        terms = self._terms
        if terms is None:
            assert callable(self._policy)
            policy = self._policy(request)
            if not isinstance(policy, RetryPolicy):
                raise TypeError(f"policy must return a RetryPolicy, not {policy!r}")
            terms = Terms(policy)
        override = request.extensions.get("retry", _NO_OVERRIDE)
        return terms if override is _NO_OVERRIDE else terms_for(terms.policy, override)

    # Opening and closing --------------------------------------------------------------------------

    def _wake_waits(self) -> None:
        # Requests that begin from now on get a new event: like httpx's own transports, a closed one
        # can be used again.
        closing, self._closing = self._closing, threading.Event()
        closing.set()

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
