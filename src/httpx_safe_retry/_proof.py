"""What one attempt proves, with all that is known of its logical request.

`_classify.py` holds the table. What it is asked with comes together here: the attempts before, how
far the request got, and whose fault an error is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ._answer import asks_for_a_wait, is_replayed
from ._classify import Finding, classify_answer, classify_error
from ._errors import RetryError
from ._outcome import UNEXECUTED, Evidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx

    from ._frozen import FrozenRequest
    from ._policy import RetryPolicy
    from ._trace import SendProgress


def proved_by_answer(
    policy: RetryPolicy,
    response: httpx.Response,
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
    return _doubted(finding, progress is not None and progress.sent > 1)


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
    return _doubted(finding, foreign or (progress is not None and progress.sent > refused))


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
    if isinstance(error, RetryError) and error.report.executed is False:
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
    return bool((theirs.method, theirs.url) != (frozen.method, frozen.url))


def _doubted(finding: Finding, doubtful: bool) -> Finding:
    if doubtful and finding.evidence in UNEXECUTED:
        return replace(finding, evidence=Evidence.AMBIGUOUS, speaks_for_key=False)
    return finding
