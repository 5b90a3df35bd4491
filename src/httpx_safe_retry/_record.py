"""What is on record of one logical request: its attempts, and what is told of them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ._answer import is_replayed
from ._classify import Finding, classify_answer
from ._decide import Decision, Facts, Retry, Wish, executed, replay_safe
from ._events import (
    AttemptFinished,
    AttemptStarted,
    Observers,
    RequestFinished,
    RetryRefused,
    RetryScheduled,
)
from ._facts import facts_of
from ._frozen import FrozenRequest
from ._outcome import Outcome, StopReason
from ._policy import Terms
from ._redact import shown_text, shown_url
from ._report import Attempt, RetryReport, folded_report

if TYPE_CHECKING:
    import httpx

_ids = itertools.count(1)


class Record:
    """Keeps the attempts of one logical request and tells the observers of them."""

    def __init__(
        self,
        observers: Observers,
        frozen: FrozenRequest,
        terms: Terms,
        facts: Facts,
        allowed: float | None,
        new_key: str | None,
    ) -> None:
        self._observers = observers
        self._frozen = frozen
        self._terms = terms
        self.facts = facts
        self._allowed = allowed
        self._new_key = new_key
        self._method = frozen.method
        self._url = shown_url(frozen.url)
        self._head = (next(_ids), self._method, self._url)
        self.attempts: list[Attempt] = []
        self.findings: list[Finding] = []
        self.slept = 0.0

    def attempt_starts(self, number: int) -> None:
        """Tell that an attempt is about to be sent."""
        if self._observers.curious:
            passive = self._terms.covered
            self._observers.tell(AttemptStarted(*self._head, number, passive=passive))

    def attempt_ended(
        self,
        *,
        status: int | None,
        error: BaseException | None,
        elapsed: float,
        wish: Wish | None = None,
        decision: Decision | None = None,
    ) -> None:
        """Put the attempt of the last finding on record.

        Without a `decision` there was nothing to decide: the error was the caller's to see.
        """
        finding = self.findings[-1]
        retry = decision if isinstance(decision, Retry) else None
        attempt = Attempt(
            number=len(self.attempts) + 1,
            status=status,
            error_type=None if error is None else type(error).__name__,
            error_text=None if error is None else self._shown(_text_of(error)),
            evidence=finding.evidence,
            elapsed=elapsed,
            retry_after=None if wish is None else wish.seconds,
            anomaly=None if wish is None else wish.anomaly,
            delay=None if retry is None else retry.delay,
            delay_source=None if retry is None else retry.source,
            reason=finding.reason if decision is None else decision.reason,
        )
        self.attempts.append(attempt)
        tell, head, passive = self._observers.tell, self._head, self._terms.covered
        if self._observers.curious:
            tell(AttemptFinished(*head, attempt, passive=passive))
        if retry is not None:
            limit = self._terms.limit
            tell(RetryScheduled(*head, attempt, limit, retry.delay, retry.source, passive=passive))

    def request_ended(
        self, outcome: Outcome, stop_reason: StopReason, elapsed: float
    ) -> RetryReport:
        """Return the report, after telling the observers of it."""
        report = RetryReport(
            outcome=outcome,
            stop_reason=stop_reason,
            executed=executed(self.facts, self.findings),
            attempts=tuple(self.attempts),
            elapsed=elapsed,
            slept=self.slept,
            replay_safe=replay_safe(self.facts, self.findings),
            idempotency_key_present=self.facts.keyed,
            method=self._method,
            url=self._url,
            max_attempts=self._terms.limit,
            deadline=self._allowed,
            is_write=self.facts.is_write,
        )
        tell, head, passive = self._observers.tell, self._head, self._terms.covered
        if self.findings and self.findings[-1].transient:
            last = self.attempts[-1]
            tell(RetryRefused(*head, last, stop_reason, last.reason, passive=passive))
        tell(RequestFinished(*head, report, passive=passive))
        return report

    def _shown(self, text: str) -> str:
        headers = [(name, value) for name, _, value in self._frozen.headers]
        if self._new_key is not None:
            headers.append((b"", self._new_key.encode("ascii")))
        return shown_text(text, self._frozen.url, headers)


def attach(report: RetryReport, response: httpx.Response) -> None:
    """Put the report where `get_report` finds it."""
    # In a mapping of its own: httpx 0.27 keeps the one that a custom transport may share among all
    # its responses.
    response.extensions = {**response.extensions, "retry": report}


def attach_success(
    response: httpx.Response,
    frozen: FrozenRequest,
    terms: Terms,
    new_key: str | None,
    elapsed: float,
    allowed: float | None,
) -> None:
    """Attach the report of a first answer that is a plain success, and let go of the request."""
    status, headers = response.status_code, response.headers
    report = folded_report(
        _unfold_success, frozen, terms, new_key, status, headers, elapsed, allowed
    )
    frozen.let_go()
    attach(report, response)


def _unfold_success(
    frozen: FrozenRequest,
    terms: Terms,
    new_key: str | None,
    status: int,
    headers: httpx.Headers,
    elapsed: float,
    allowed: float | None,
) -> tuple[object, ...]:
    """Return the fields of the report of a request that succeeded at once, in order."""
    facts = facts_of(frozen, terms.policy, new_key)
    replayed = is_replayed(headers)
    finding = classify_answer(terms.policy, status, keyed=facts.keyed, replayed=replayed)
    attempt = Attempt(1, status, None, None, finding.evidence, elapsed, reason=finding.reason)
    return (
        Outcome.SUCCESS,
        StopReason.DONE,
        True,
        (attempt,),
        elapsed,
        0.0,
        facts.idempotent or facts.keyed,
        facts.keyed,
        frozen.method,
        shown_url(frozen.url),
        terms.limit,
        allowed,
        facts.is_write,
    )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # somebody's own class; what it has no words for happened nevertheless
        return ""
