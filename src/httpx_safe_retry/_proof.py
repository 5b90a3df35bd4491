"""What one attempt proves, with all that is known of its logical request.

`_classify.py` holds the table. What it is asked with comes together here: the attempts before, how
far the request got, whose fault an error is, and what a layer of ours inside has found out. Such a
layer's doubt is taken over; of what it rules out, only that a failed request was sent at all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ._answer import asks_for_a_wait, is_replayed
from ._classify import Finding, classify_answer, classify_error
from ._errors import RetryError
from ._frozen import FrozenRequest, is_same
from ._outcome import UNEXECUTED, Evidence, Outcome
from ._policy import RetryPolicy
from ._redact import shown_url
from ._report import RetryReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx

    from ._trace import SendProgress

_USUAL = RetryPolicy()
"""What an answer or an error means to somebody who knows no more than that."""


def proved_by_answer(
    policy: RetryPolicy,
    response: httpx.Response,
    frozen: FrozenRequest,
    earlier: Sequence[Finding],
    progress: SendProgress | None,
    *,
    keyed: bool,
    wall: float,
) -> Finding:
    """Return what an answer proves. `earlier`: what the attempts before did; `wall`: Unix time."""
    status = response.status_code
    finding = classify_answer(
        policy,
        status,
        keyed=keyed,
        replayed=is_replayed(response.headers),
        valid_retry_after=status == 413 and asks_for_a_wait(response, wall),
        after_ambiguous=any(finding.evidence is Evidence.AMBIGUOUS for finding in earlier),
    )
    # What is wrapped may have sent it before, and this is the answer to its last try alone.
    finding = _doubted(finding, progress is not None and progress.sent > 1)
    report = response.extensions.get("retry")
    # An app that hands on what it was answered itself speaks of its own request.
    if not isinstance(report, RetryReport) or not _is_of(report, frozen):
        return finding
    hidden = _hidden(report, classify_answer(_USUAL, status))
    if hidden is not Evidence.EXECUTED or finding.evidence is hidden:
        return _doubted(finding, hidden is not None)
    answered = report.outcome is Outcome.SUCCESS
    return replace(finding, evidence=hidden, speaks_for_key=False, answered=answered)


def proved_by_error(
    policy: RetryPolicy,
    error: BaseException,
    frozen: FrozenRequest,
    progress: SendProgress | None,
    answer: Finding | None,
) -> Finding | None:
    """Return what a transport error proves; None for any other error.

    `answer`: what the answer proved whose body was being read.
    """
    foreign = _is_about_another(error, frozen)
    finding = classify_error(
        policy,
        error,
        never_sent=not foreign and _never_sent(error, progress),
        stream_id=None if progress is None else progress.stream_id,
        answer=answer,
    )
    if finding is None or answer is not None:
        return finding
    refused = finding.evidence is Evidence.REFUSED
    finding = _doubted(finding, foreign or (progress is not None and progress.sent > refused))
    report = vars(error).get("report")
    if foreign or not isinstance(report, RetryReport):
        return finding
    usual = classify_error(_USUAL, error)
    assert usual is not None  # which errors it knows is not the policy's to say
    hidden = _hidden(report, usual)
    return finding if hidden is None else replace(finding, evidence=hidden)


def left_open(
    error: BaseException,
    frozen: FrozenRequest,
    progress: SendProgress | None,
    answer: Finding | None,
) -> Finding:
    """Return what an attempt proves that ended in neither an answer nor a transport error."""
    reason = type(error).__name__
    if answer is not None:
        return Finding(answer.evidence, False, reason, answer.speaks_for_key)
    unsent = not _is_about_another(error, frozen) and _never_sent(error, progress)
    return Finding(Evidence.NOT_SENT if unsent else Evidence.AMBIGUOUS, False, reason)


def _never_sent(error: BaseException, progress: SendProgress | None) -> bool:
    report = getattr(error, "report", None) if isinstance(error, RetryError) else None
    if isinstance(report, RetryReport) and report.executed is False:
        # A layer inside has looked closer than we can.
        return True
    return progress is not None and progress.never_sent(error)


def _is_about_another(error: BaseException, frozen: FrozenRequest) -> bool:
    # An app behind an ASGI or WSGI transport lets out what its own client met on the way to
    # somewhere else, after it ran our request. A client names the request in its errors.
    try:
        theirs = getattr(error, "request", None)
    except RuntimeError:
        return False  # httpx: "The .request property has not been set."
    if theirs is None or theirs is frozen.request:
        return False
    try:
        return not is_same(theirs, frozen)
    except (AttributeError, TypeError, ValueError):
        return True  # what somebody's own error calls its request may be anything


def _is_of(report: RetryReport, frozen: FrozenRequest) -> bool:
    return (report.method, report.url) == (frozen.method, shown_url(frozen.url))


def _hidden(report: RetryReport, usual: Finding) -> Evidence | None:
    """Return why a request may have run, if a layer inside knows more than it let out.

    The last answer or error is silent on the attempts before it, and `usual`, what it shows to
    anybody, may not be all that is known of it.
    """
    if report.executed is False:
        return None
    known = [attempt.evidence for attempt in report.attempts]
    if known[-1:] == [usual.evidence]:
        known.pop()
    for evidence in (Evidence.EXECUTED, Evidence.AMBIGUOUS):
        if evidence in known:
            return evidence
    return None


def _doubted(finding: Finding, doubtful: bool) -> Finding:
    if doubtful and finding.evidence in UNEXECUTED:
        return replace(finding, evidence=Evidence.AMBIGUOUS, speaks_for_key=False)
    return finding
