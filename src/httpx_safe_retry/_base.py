"""What the drivers for threads and for tasks share: a transport's state, and how a logical request
begins.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar, Token
from dataclasses import replace
from random import random as _system_random
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ._at_once import AtOnce
from ._backoff import Random
from ._body import freeze
from ._budget import Budget, RetryBudget
from ._checks import check_methods
from ._clock import Clock, SystemClock
from ._course import Setting
from ._deadline import current as current_block
from ._deadline import remaining_of
from ._engine import LogicalRequest
from ._events import Listener, Observers
from ._frozen import FrozenRequest, is_same
from ._library import Library
from ._policy import RetryPolicy, Terms, terms_for
from ._wrapped import Wrapped, warn_of_retries_inside

if TYPE_CHECKING:
    import httpx

around: ContextVar[list[httpx.Request] | None] = ContextVar("httpx_safe_retry_around", default=None)
"""The attempt that this thread or task is in, so that layers don't multiply: a list of what it
sends, emptied when it is over. Tasks that were started in one carry the list with them for as long
as they live, and must keep nothing of the request.
"""


def leave(under_way: list[httpx.Request], token: Token[list[httpx.Request] | None]) -> None:
    """Note that the attempt of this thread or task is over."""
    under_way.clear()
    try:
        around.reset(token)
    except ValueError:
        return  # a coroutine was closed in another context than its own, which it never entered


_NO_OVERRIDE = object()


class Base:
    """What a transport holds, and what it does before a request is sent."""

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

    def _begin(self, request: httpx.Request, task_left: Callable[[], float]) -> LogicalRequest:
        library = self._library
        if not isinstance(request, library.request):
            library.refuse_request(request)
        terms = self._terms_of(request)
        for attempt in around.get() or ():
            # Layers multiply: three that send three times each send 27 requests. The outermost
            # decides. An app behind it, or what fetches a token, sends requests of its own, though.
            terms = replace(terms, passive=True, covered=is_same(attempt, request))
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
        if not terms.covered:
            frozen.count_anew()
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

    def _wake_waits(self) -> None:
        # Requests that begin from now on get a new event: like httpx's own transports, a closed one
        # can be used again.
        closing, self._closing = self._closing, threading.Event()
        closing.set()
