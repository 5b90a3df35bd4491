"""The report in plain words: one line for a log at three in the morning, a paragraph for whoever
has to decide what comes next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._outcome import Evidence, Outcome, StopReason

if TYPE_CHECKING:
    from ._report import Attempt, RetryReport

_ENDED = {
    Outcome.SUCCESS: "succeeded",
    Outcome.PERMANENT_FAILURE: "failed",
    Outcome.EXHAUSTED: "failed",
    Outcome.DEADLINE_EXCEEDED: "ran out of time",
    Outcome.CANCELLED: "was cancelled",
}

_BECAUSE = {
    StopReason.NOT_TRANSIENT: "the same again is not expected to help",
    StopReason.NOT_REPLAY_SAFE: "repeating it could run it twice",
    StopReason.BODY_NOT_REPLAYABLE: "its body could not be sent again",
    StopReason.MAX_ATTEMPTS: "no attempts were left",
    StopReason.RETRY_AFTER: "the server asked for a longer wait than the policy allows",
    StopReason.DEADLINE: "no time was left for another attempt",
    StopReason.BUDGET: "the retry budget for this origin was spent",
    StopReason.DISABLED: "retries were off for this request",
    StopReason.CANCELLED: "it was cancelled",
}

PROVED = {
    Evidence.EXECUTED: "ran",
    Evidence.REFUSED: "did not run",
    Evidence.NOT_SENT: "was not sent",
    Evidence.AMBIGUOUS: "may have run",
}
"""What an attempt's evidence says of the request."""


def seconds(value: float) -> str:
    """Return a duration as a person reads it: `0.25 s`, `12 s`."""
    if value < 1:
        return f"{round(value, 3):g} s"
    return f"{value:.3g} s" if value < 100 else f"{value:.0f} s"


def summary(report: RetryReport) -> str:
    """Return one line: what, how it ended, what came back last, and why it ended there."""
    words = f"{report.method} {report.url} {_ended(report)}"
    if not report.attempts:
        return f"{words} before it was sent"
    last, limit = report.attempts[-1], report.max_attempts
    spent = seconds(report.elapsed)
    words += f": {_result(last)} at attempt {last.number} of {limit} after {spent}"
    if report.outcome in (Outcome.SUCCESS, Outcome.CANCELLED):
        return words
    return f"{words}; {_because(report)}"


def explain(report: RetryReport) -> str:
    """Return a paragraph: the attempts in order, what is known, and what to do next."""
    spent = f"{seconds(report.elapsed)} in all"
    if report.slept > 0:
        spent += f", {seconds(report.slept)} of it waiting"
    lines = [f"{report.method} {report.url} {_ended(report)} ({spent})."]
    lines += [f"  {one.number}. {_attempt(one, report.is_write)}" for one in report.attempts]
    if report.outcome is not Outcome.SUCCESS:
        again = f"It was not sent again because {_because(report)}."
        lines.append(again if report.attempts else "It was not sent at all.")
        lines += _advice(report)
    return "\n".join(lines)


def _ended(report: RetryReport) -> str:
    if report.outcome is not Outcome.UNCERTAIN_WRITE:
        return _ENDED[report.outcome]
    return "happened, but no usable answer came back" if report.executed else "may have happened"


def _because(report: RetryReport) -> str:
    words = _BECAUSE[report.stop_reason]
    if report.stop_reason is StopReason.NOT_TRANSIENT and _is_keyed_conflict(report):
        words = "the same again, at once, is not expected to help"
    if report.stop_reason is StopReason.DEADLINE and report.deadline is not None:
        words += f" within its {seconds(report.deadline)}"
    return words


def _result(attempt: Attempt) -> str:
    came = (attempt.status, attempt.error_type)
    return ", then ".join(str(one) for one in came if one is not None)


def _attempt(attempt: Attempt, is_write: bool) -> str:
    facts = [seconds(attempt.elapsed)]
    if is_write or attempt.evidence is Evidence.NOT_SENT:
        facts.append(PROVED[attempt.evidence])
    if attempt.error_text:
        facts.append(f'"{attempt.error_text}"')
    words = f"{attempt.reason} ({'; '.join(facts)})"
    if attempt.anomaly is not None:
        words += f"; the wait that it asked for was not followed: {attempt.anomaly}"
    if attempt.delay is not None:
        words += f"; next one due after {seconds(attempt.delay)} ({attempt.delay_source})"
    return f"{words}."


def _advice(report: RetryReport) -> list[str]:
    if report.outcome is Outcome.UNCERTAIN_WRITE:
        return _advice_on_uncertainty(report)
    known = ["The operation did not happen."] if report.is_write else []
    if _is_keyed_conflict(report):
        return [
            "This request did not run. If you have sent its key before, that request may be "
            "running, or may have run: send the same again later, or look up what became of it."
        ]
    if report.outcome is Outcome.PERMANENT_FAILURE:
        return [*known, "Change the request, or what it depends on, before you send it again."]
    if not report.replay_safe:
        return [*known, "Send it again only if running it twice does no harm."]
    return [*known, f"It can be sent again{_when(report)}."]


def _is_keyed_conflict(report: RetryReport) -> bool:
    # Its conflict may be with another request of the same key, of which this report knows nothing:
    # one that was cut off by a crash, say (draft-ietf-httpapi-idempotency-key-header-07 section
    # 2.7).
    if not (report.idempotency_key_present and report.attempts):
        return False
    return report.attempts[-1].status == 409


def _advice_on_uncertainty(report: RetryReport) -> list[str]:
    known = (
        "The operation did happen: do not tell your user that it failed."
        if report.executed
        else "Nobody knows whether the operation happened: tell your user that, not that it failed."
    )
    if report.replay_safe:
        lines = [known]
        if report.stop_reason is StopReason.NOT_TRANSIENT:
            lines.append("Look up on the server what became of it.")
        lines.append(f"The same request can safely be sent again{_when(report)}.")
        if report.idempotency_key_present:
            # The policy may have made it, so that the caller doesn't hold it.
            lines.append("Use the same idempotency key: a new one could run it twice.")
        return lines
    return [
        known,
        "Look up on the server what became of it before you send it again.",
        "It is not idempotent and carries no idempotency key: next time send one that the server "
        "honours.",
    ]


def _when(report: RetryReport) -> str:
    if report.stop_reason in (StopReason.MAX_ATTEMPTS, StopReason.DEADLINE):
        return " later"
    if report.stop_reason is StopReason.BODY_NOT_REPLAYABLE:
        return ", with its body made anew"
    if report.stop_reason is StopReason.BUDGET:
        return ", but not at once: much is failing there"
    asked = report.attempts[-1].retry_after if report.attempts else None
    if report.stop_reason is StopReason.RETRY_AFTER and asked is not None:
        return f", in {seconds(asked)} and not sooner"
    return ""
