"""The way of a request that succeeds at once: nearly all of them.

It asks for nothing that takes thought before its first attempt, and its answer needs none either.
What the engine would need is kept, in case it does not succeed; no more than that is done, in as
few steps as there are, because everybody pays for them on every request.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ._budget import Budget, debtors
from ._events import logger
from ._facts import needs_evidence
from ._frozen import FrozenRequest
from ._library import Library
from ._policy import RetryPolicy, Terms
from ._private import origin_of
from ._record import attach_success
from ._trace import SendProgress

if TYPE_CHECKING:
    import httpx


class AtOnce:
    """What one transport knows of such requests beforehand."""

    __slots__ = (
        "_budget",
        "_byte_stream",
        "_debtors",
        "_idempotent",
        "_terms",
        "_to_think_about",
        "prefetch",
    )

    def __init__(self, library: Library, terms: Terms, budget: Budget | None) -> None:
        policy = terms.policy
        self._byte_stream = library.byte_stream
        self._terms = terms
        self._budget = budget
        self._debtors = debtors(budget)
        self._idempotent = policy.idempotent_methods
        self.prefetch = policy.prefetch
        """How long the body of an answer may be to be read within the attempt."""
        self._to_think_about = frozenset({*policy.statuses, *policy.refusal_statuses})

    @staticmethod
    def suits(policy: RetryPolicy) -> bool:
        """Whether the policy has nothing to say before a first attempt, or after a success."""
        return (
            policy.deadline is None
            and policy.deadline_header is None
            and policy.idempotent is None
            and policy.idempotency_key is None
            and policy.classify is None
        )

    def start(self, request: httpx.Request, *, asynchronous: bool) -> FrozenRequest | None:
        """Freeze a request and say what to send; None for one that takes more thought."""
        if (
            "retry" in request.extensions
            or "retry_attempt" in request.extensions
            or type(request.stream) is not self._byte_stream
            or logger.isEnabledFor(logging.DEBUG)
        ):
            return None
        frozen = FrozenRequest(request)
        if frozen.method not in self._idempotent and needs_evidence(frozen, self._terms):
            frozen.trace(SendProgress(frozen.extensions.get("trace"), asynchronous=asynchronous))
        if self._debtors and self._budget is not None:
            self._budget.deposit(origin_of(request.url))
        return frozen

    def is_success(self, response: httpx.Response) -> bool:
        """Whether the answer is a success that needs no thought."""
        status = response.status_code
        return 200 <= status < 400 and status not in self._to_think_about

    def attach(self, response: httpx.Response, frozen: FrozenRequest, elapsed: float) -> None:
        """Attach the report of such a success."""
        attach_success(response, frozen, self._terms, None, elapsed, None)
