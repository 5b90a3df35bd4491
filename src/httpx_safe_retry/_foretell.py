"""What follows when an attempt ends in some way, in words for whoever asks before it happens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from . import _trials as trials
from ._explain import PROVED, seconds
from ._facts import facts_of
from ._frozen import FrozenRequest
from ._outcome import Verdict
from ._policy import RetryPolicy
from ._report import Attempt
from ._terminal import WIDTH, Paint, wrapped
from ._trials import Ending, Trial


@dataclass(frozen=True, slots=True)
class Question:
    """A request, and how its attempts end: the last of them is asked about."""

    method: str
    keyed: bool
    policy: RetryPolicy
    endings: Sequence[Ending]


def lines(asked: Question, paint: Paint) -> Iterator[str]:
    """Yield the lines of the answer. Raises `ValueError` if it never comes to that attempt."""
    number = len(asked.endings)
    longest, shortest = _run(asked, asked.policy, 0.0), _run(asked, asked.policy, _ALMOST_ONE)
    if not longest.sent(number):
        made = len(longest.report.attempts)
        raise ValueError(f"there would be no attempt {number}: it ends with attempt {made}")
    attempt, least = (trial.report.attempts[number - 1] for trial in (longest, shortest))
    yield from wrapped(f"{asked.method} {'with' if asked.keyed else 'without'} an idempotency key")
    yield ""
    yield from _row("attempt", f"{number} of {asked.policy.max_attempts}")
    yield from _row("came back", _came_back(asked))
    if attempt.anomaly is not None:
        yield from _row("Retry-After", f"not followed: {attempt.anomaly}")
    elif attempt.retry_after is not None and attempt.retry_after > asked.policy.retry_after_max:
        longest_wait = seconds(asked.policy.retry_after_max)
        yield from _row("Retry-After", f"{seconds(attempt.retry_after)}: cut to {longest_wait}")
    yield from _row("it proves", f"{attempt.evidence}: it {PROVED[attempt.evidence]}")
    yield from _row("replay-safe", _safety(asked, longest))
    yield from _row("next", _next(attempt, least))
    yield ""
    if longest.sent(number + 1):
        yield "If all that follow end like this:"
        yield ""
    yield from _end(longest, paint)


_ALMOST_ONE = 1.0 - 2.0**-53
"""The greatest that can be drawn from [0, 1)."""


def _run(asked: Question, policy: RetryPolicy, drawn: float) -> Trial:
    request = trials.request_for(asked.method, keyed=asked.keyed, endings=asked.endings)
    return trials.run(request, asked.endings, policy=policy, drawn=drawn)


def _came_back(asked: Question) -> str:
    # An attempt's reason tells the decision as well; of one after which nothing is to be decided,
    # it is what came back alone.
    last, attempts = len(asked.endings), itertools.count(1)

    def no_more(request: object, result: object) -> Verdict | None:
        return Verdict(transient=False) if next(attempts) == last else None

    trial = _run(asked, asked.policy.replace(classify=no_more), 0.0)
    return trial.report.attempts[last - 1].reason


def _safety(asked: Question, trial: Trial) -> str:
    request = trials.request_for(asked.method, keyed=asked.keyed)
    facts = facts_of(FrozenRequest(request), asked.policy, None)
    if facts.keyed:
        return "yes: it carries an idempotency key"
    if facts.idempotent:
        declared = "declared " if asked.policy.idempotent else ""
        return f"yes: {asked.method} is {declared}idempotent"
    if trial.report.replay_safe:
        return "yes: no attempt has run it so far"
    return "no: sending it again could run it twice"


def _next(attempt: Attempt, least: Attempt) -> str:
    if attempt.delay is None or least.delay is None:
        return "not sent again"
    wait = seconds(attempt.delay)
    if least.delay < attempt.delay:
        wait = f"{seconds(least.delay)} to {wait}"
    return f"sent again after {wait} ({attempt.delay_source}), if the budget allows"


def _end(trial: Trial, paint: Paint) -> Iterator[str]:
    report = trial.report
    yield from _row("outcome", report.outcome, lambda text: paint(text, report.outcome))
    yield from _row("stop reason", report.stop_reason)
    yield from _row("executed", _EXECUTED[report.executed])
    yield from _row("you get", _result(trial))
    advice = report.explain().splitlines()[len(report.attempts) + 1 :]
    if advice:
        yield ""
        yield from wrapped(" ".join(advice))


_EXECUTED = {
    True: "True: the server ran it",
    False: "False: the server provably did not run it",
    None: "None: nobody knows",
}


def _result(trial: Trial) -> str:
    if trial.as_it_was:
        return f"the {trial.error} as it was"
    if not trial.response:
        return f"{trial.error}, which is a {trial.report.attempts[-1].error_type} as well"
    if trial.error is None:
        return "the response"
    return f"the response, of which raise_for_outcome makes {trial.error}"


_LABEL = 11


def _row(label: str, text: str, paint: Callable[[str], str] = str) -> Iterator[str]:
    for part in wrapped(text, WIDTH - _LABEL - 2):
        yield f"{label:{_LABEL}}  {paint(part)}"
        label = ""
