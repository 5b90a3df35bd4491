"""Events for listeners, and the log lines that an operator reads.

Everything that leaves this library in words or values goes through here or through the report, and
neither holds a secret: of a URL they show scheme, host, port and path, of a header nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ._explain import seconds
from ._outcome import DelaySource, Outcome, StopReason
from ._report import Attempt, RetryReport

logger = logging.getLogger("httpx_safe_retry")


@dataclass(frozen=True, slots=True)
class RetryEvent:
    """What all events share.

    request_id: tells the logical requests of one process apart.
    method: of the request.
    url: scheme, host, port and path.
    passive: whether another `RetryTransport` around this one tells of the same request (by method
        and URL), and has the last word: whoever counts requests leaves this event out. What is sent
        on the way elsewhere, by an app behind that transport or to fetch a token, is a request of
        its own, though no layer but the outermost sends one again.
    """

    request_id: int
    method: str
    url: str
    passive: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class AttemptStarted(RetryEvent):
    """An attempt is about to be sent; `number` is 1 for the first."""

    number: int


@dataclass(frozen=True, slots=True)
class AttemptFinished(RetryEvent):
    """An attempt ended, and what follows is decided."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class RetryScheduled(RetryEvent):
    """The request will be sent again after `delay` seconds; `attempt` is the one that failed, and
    `source` the rule that chose the delay.
    """

    attempt: Attempt
    max_attempts: int
    delay: float
    source: DelaySource


@dataclass(frozen=True, slots=True)
class RetryRefused(RetryEvent):
    """A transient failure is not retried; `stop_reason` says which rule forbids it, `reason` why in
    words.
    """

    attempt: Attempt
    stop_reason: StopReason
    reason: str


@dataclass(frozen=True, slots=True)
class RequestFinished(RetryEvent):
    """A logical request ended, and `report` tells how."""

    report: RetryReport


Listener = Callable[[RetryEvent], object]


class Observers:
    """Tells the log and the listeners. Without a listener or DEBUG it asks for no successes."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        try:
            self._listeners = tuple(listeners)
        except TypeError:
            raise TypeError(f"listeners must hold callables, not {listeners!r}") from None
        for listener in self._listeners:
            if not callable(listener):
                raise TypeError(f"listeners must hold callables, not {listener!r}")

    @property
    def curious(self) -> bool:
        """Whether somebody wants to know of what went well, too."""
        return bool(self._listeners) or logger.isEnabledFor(logging.DEBUG)

    def tell(self, event: RetryEvent) -> None:
        """Log the event and hand it to every listener. A listener that raises harms nothing."""
        _log(event)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                # Not its repr, which may show what is bound to it.
                name = getattr(listener, "__qualname__", type(listener).__qualname__)
                logger.exception("listener %s failed on %s", name, type(event).__name__)


def _log(event: RetryEvent) -> None:
    where = f"{event.method} {event.url}"
    match event:
        case RetryScheduled(attempt=attempt):
            logger.info(
                "%s: %s; attempt %d of %d in %s (%s)",
                where,
                attempt.reason,
                attempt.number + 1,
                event.max_attempts,
                seconds(event.delay),
                event.source,
            )
        case RequestFinished(report=report):
            uncertain = report.outcome is Outcome.UNCERTAIN_WRITE and not event.passive
            level = logging.WARNING if uncertain else logging.DEBUG
            if logger.isEnabledFor(level):
                logger.log(level, "%s", report.summary())
        case AttemptStarted(number=number):
            logger.debug("%s: attempt %d", where, number)
        case AttemptFinished(attempt=attempt):
            logger.debug("%s: attempt %d: %s", where, attempt.number, attempt.reason)
        case RetryRefused(reason=reason):
            logger.debug("%s: not sent again: %s", where, reason)
        case _:  # an event that a user's own code made up
            logger.debug("%s: %s", where, type(event).__name__)
