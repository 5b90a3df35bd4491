"""What one attempt proves, with all that is known of its logical request.

`_classify.py` holds the table. What it is asked with comes together here: the attempts before, how
far the request got, and whose fault an error is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._answer import asks_for_a_wait, replayed
from ._classify import Finding, classify_answer, classify_error
from ._errors import RetryError
from ._outcome import Evidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx

    from ._policy import RetryPolicy
    from ._trace import SendProgress


def proved_by_answer(
    policy: RetryPolicy,
    response: httpx.Response,
    earlier: Sequence[Finding],
    *,
    keyed: bool,
    wall: float,
) -> Finding:
    """Return what an answer proves. `earlier`: the findings of the attempts before it; `wall`: Unix
    time.
    """
    status = response.status_code
    return classify_answer(
        policy,
        status,
        keyed=keyed,
        replayed=replayed(response),
        valid_retry_after=status == 413 and asks_for_a_wait(response, wall),
        after_ambiguous=any(finding.evidence is Evidence.AMBIGUOUS for finding in earlier),
    )


def proved_by_error(
    policy: RetryPolicy,
    error: BaseException,
    progress: SendProgress | None,
    answer: Finding | None,
) -> Finding | None:
    """Return what a transport error proves; None for any other error.

    `answer`: what the answer proved whose body was being read.
    """
    return classify_error(
        policy,
        error,
        never_sent=_never_sent(error, progress),
        stream_id=None if progress is None else progress.stream_id,
        answer=answer,
    )


def left_open(
    error: BaseException, progress: SendProgress | None, answer: Finding | None
) -> Finding:
    """Return what an attempt proves that ended in something else than an answer or a transport
    error.
    """
    reason = type(error).__name__
    if answer is not None:
        return Finding(answer.evidence, False, reason, answer.speaks_for_key)
    unsent = _never_sent(error, progress)
    return Finding(Evidence.NOT_SENT if unsent else Evidence.AMBIGUOUS, False, reason)


def _never_sent(error: BaseException, progress: SendProgress | None) -> bool:
    if isinstance(error, RetryError):
        # A passive layer inside has looked closer than we can.
        return error.report.executed is False
    return progress is not None and progress.never_sent
