"""The report in plain words: one line for a log at three in the morning, a paragraph for the
rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._outcome import Evidence, Outcome, StopReason

if TYPE_CHECKING:
    from ._report import Attempt, RetryReport

_EVIDENCE = {
    Evidence.EXECUTED: "the server confirmed it",
    Evidence.REFUSED: "the server did not run it",
    Evidence.NOT_SENT: "it was not sent",
    Evidence.AMBIGUOUS: "the server may or may not have run it",
}

_STOPPED = {
    StopReason.DONE: "it was done",
    StopReason.NOT_TRANSIENT: "sending the same again would not help",
    StopReason.NOT_REPLAY_SAFE: (
        "it may have run, and sending it again could run it twice: it is neither idempotent "
        "nor does it carry an idempotency key"
    ),
    StopReason.BODY_NOT_REPLAYABLE: "its body could not be sent again",
    StopReason.MAX_ATTEMPTS: "no attempts were left",
    StopReason.RETRY_AFTER: "the server asked for a longer wait than the policy allows",
    StopReason.DEADLINE: "the deadline left no time for another attempt",
    StopReason.BUDGET: "the retry budget for this origin was spent",
    StopReason.DISABLED: "retries are off for this request",
    StopReason.CANCELLED: "it was cancelled",
}

_HEADLINE = {
    Outcome.SUCCESS: "succeeded",
    Outcome.PERMANENT_FAILURE: "failed for good",
    Outcome.EXHAUSTED: "failed",
    Outcome.DEADLINE_EXCEEDED: "ran out of time",
    Outcome.CANCELLED: "was cancelled",
    Outcome.UNCERTAIN_WRITE: "ended without certainty",
}


def seconds(value: float) -> str:
    """Return a duration as a person reads it: `0.25 s`, `12 s`."""
    return f"{value:.3g} s" if value < 100 else f"{value:.0f} s"


def result(attempt: Attempt) -> str:
    """Return what came back from one attempt, in one or two words."""
    if attempt.error_type is None:
        return str(attempt.status)
    if attempt.status is None:
        return attempt.error_type
    return f"{attempt.status}, then {attempt.error_type}"


def summary(report: RetryReport) -> str:
    """Return one line: what, how it ended, after how many attempts, and why it ended there."""
    words = [f"{report.method} {report.url} {_HEADLINE[report.outcome]} after {_attempts(report)}"]
    if report.attempts:
        words.append(f": {result(report.attempts[-1])}")
    if report.outcome is not Outcome.SUCCESS:
        words.append(f"; {_STOPPED[report.stop_reason]}")
        if report.stop_reason is StopReason.DEADLINE and report.deadline is not None:
            words.append(f" ({seconds(report.elapsed)} of {seconds(report.deadline)} used)")
    if report.outcome is Outcome.UNCERTAIN_WRITE:
        words.append(
            "; the server confirmed it" if report.executed else "; the server may have run it"
        )
    return "".join(words)


def explain(report: RetryReport) -> str:
    """Return a paragraph: the attempts in order, what is known, and what to do next."""
    lines = [f"{report.method} {report.url} {_HEADLINE[report.outcome]} after {_attempts(report)}."]
    lines += [f"  {attempt.number}. {_attempt(attempt)}" for attempt in report.attempts]
    if report.outcome is not Outcome.SUCCESS:
        lines.append(f"It ended there because {_STOPPED[report.stop_reason]}.")
    lines.append(_advice(report))
    return "\n".join(lines)


def _attempts(report: RetryReport) -> str:
    limit = report.max_attempts
    return f"{len(report.attempts)} of {limit} attempt{'' if limit == 1 else 's'}"


def _attempt(attempt: Attempt) -> str:
    words = [f"{result(attempt)} after {seconds(attempt.elapsed)}: {_EVIDENCE[attempt.evidence]}"]
    if attempt.error_text:
        words.append(f" ({attempt.error_text})")
    if attempt.anomaly is not None:
        words.append(f"; its Retry-After was not followed: {attempt.anomaly}")
    if attempt.delay is not None:
        words.append(f"; waited {seconds(attempt.delay)} ({attempt.delay_source})")
    return "".join(words) + "."


def _advice(report: RetryReport) -> str:
    if report.outcome is Outcome.SUCCESS:
        return "Nothing is left to do."
    if report.outcome is Outcome.UNCERTAIN_WRITE:
        return _advice_on_uncertainty(report)
    did_not_happen = "The operation did not happen." if report.is_write else "Nothing was changed."
    if report.outcome is Outcome.PERMANENT_FAILURE:
        return (
            f"{did_not_happen} Change the request, or what it depends on, before sending it again."
        )
    return f"{did_not_happen} It can be sent again later."


def _advice_on_uncertainty(report: RetryReport) -> str:
    if report.executed:
        known = "The operation did happen, but the server's answer to it was lost."
    else:
        known = (
            "Nobody knows whether the operation happened: tell your user that, not that it failed."
        )
    if report.replay_safe:
        means = "with the same key" if report.idempotency_key_present else "unchanged"
        return f"{known} Sending the same request again, {means}, is safe."
    return (
        f"{known} Do not send it again blindly: look up on the server whether it is there. "
        "Next time send an idempotency key that the server honours, and this is retried for you."
    )
