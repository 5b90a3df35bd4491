"""What the client says, held against the ledger.

The rule: the ledger is the truth.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from .cases import Case
from .drivers import Claim, Truth


@dataclass
class Tally:
    """What became of so many runs."""

    runs: int = 0
    duplicates: int = 0
    """Writes that are not replay-safe and ran more than once."""
    mangled: int = 0
    """Requests that came in whole with another body."""
    false_claims: int = 0
    lost: int = 0
    """Replay-safe requests that did not get through to a server that was healthy at once."""
    uncertain: int = 0
    """Writes of which the caller was told that nobody knows."""
    uncertain_unexecuted: int = 0
    """Those of them that in truth never ran."""
    broke_off: int = 0
    """Answers without a length that were handed out, and broke off behind their head."""
    retried: int = 0
    """Writes that are not replay-safe by themselves, proved unexecuted and sent again."""
    violations: list[str] = field(default_factory=list[str])

    def add(self, other: Tally) -> None:
        """Count in what was found elsewhere."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def judge(self, case: Case, claim: Claim, truth: Truth) -> list[str]:
        """Count one run, and return what is wrong with it."""
        self.runs += 1
        executed = truth.executed
        found = [*self._duplicates(case, executed), *self._lies(case, claim, executed)]
        if any(body != case.body for body in truth.bodies):
            self.mangled += 1
            found.append("another body")
        if case.operation.replay_safe and not claim.success:
            self.lost += 1
            found.append("lost")
        self.broke_off += claim.broke_off
        if claim.uncertain:
            self.uncertain += 1
            self.uncertain_unexecuted += not executed
        if claim.success and claim.attempts > 1 and not case.operation.replay_safe:
            self.retried += 1
        if found:
            kinds = ", ".join(found)
            told = claim.unexpected or claim.words
            self.violations.append(f"{kinds}: {case}, executed {executed} times: {told}")
        return found

    def _duplicates(self, case: Case, executed: int) -> list[str]:
        at_most_once = case.operation.keyed or not case.operation.replay_safe
        if at_most_once and executed > 1:
            self.duplicates += 1
            return ["duplicate"]
        return []

    def _lies(self, case: Case, claim: Claim, executed: int) -> list[str]:
        lies = []
        if claim.unexpected is not None:
            lies.append("unexpected")
        if claim.success and not executed:
            lies.append("success that never ran")
        if case.operation.is_write and not (claim.success or claim.uncertain) and executed:
            lies.append("failure that ran")
        if claim.executed is False and executed:
            lies.append("executed is False, and it ran")
        if claim.executed is True and not executed:
            lies.append("executed is True, and it never ran")
        self.false_claims += bool(lies)
        return lies
