"""The whole decision table, asked row by row of what decides.

Answers and errors of the same consequences share a row; that they do is found out, not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from . import _trials as trials
from ._outcome import Evidence, Outcome
from ._policy import DEFAULT_POLICY
from ._terminal import Paint, wrapped
from ._trials import CASES, ERRORS, Ending, Trial

KINDS = (("GET", False), ("PUT", False), ("POST", True), ("POST", False))
"""The kinds of request: method, and whether it carries an idempotency key."""

TITLES = tuple(f"{method}+key" if keyed else method for method, keyed in KINDS)

MEANINGS = {
    "success": "done",
    "retry": "sent again; if that never helps: exhausted, a write did not happen",
    "retry (?)": "sent again; if that never helps: uncertain_write",
    "failure": "not sent again: permanent_failure, a write did not happen",
    "uncertain": "not sent again: uncertain_write, it may have happened, or did",
    "as it is": "not sent again: the error reaches you as it was",
    "-": "it never comes to that",
}
"""What the words in the table mean."""

_AGAIN = {Outcome.EXHAUSTED: "retry", Outcome.UNCERTAIN_WRITE: "retry (?)"}
_ENDED = {
    Outcome.SUCCESS: "success",
    Outcome.PERMANENT_FAILURE: "failure",
    Outcome.UNCERTAIN_WRITE: "uncertain",
}


@dataclass(frozen=True, slots=True)
class Consequences:
    """What follows from one thing that may come back."""

    evidence: Evidence
    """What it proves about an unkeyed POST, or the next kind that can meet it."""
    cells: tuple[str, ...]
    """A word for each kind of request."""


@dataclass(frozen=True, slots=True)
class Row:
    """What came back, and what follows."""

    label: str
    follows: Consequences


def sections() -> list[list[Row]]:
    """Return the table: answers, then errors by their class, then what is known by more."""
    return [
        [*_merged(_by_status()), *_answers()],
        _merged({name: _ask([trials.error(name)]) for name in ERRORS if _is_last(name)}),
        [Row(case.label, _ask([case.ending])) for case in CASES.values()],
    ]


def lines(paint: Paint) -> Iterator[str]:
    """Yield the lines of the table. `paint(text, word)`: the text in the colour of the word."""
    yield _line("what came back", "proves", TITLES, lambda text, word: paint(text, "title"))
    for section in sections():
        yield _RULE
        for row in section:
            first, *others = wrapped(row.label, _LABEL)
            yield _line(first, row.follows.evidence, row.follows.cells, paint)
            yield from (f"  {other}" for other in others)
    yield _RULE
    for word, meaning in MEANINGS.items():
        yield paint(f"{word:{_CELL}}", word) + f"  {meaning}"
    yield ""
    yield from wrapped(
        f"At most {DEFAULT_POLICY.max_attempts} attempts in all. What something proves, it proves "
        "of a POST without a key: how far other requests got is not followed, since they may be "
        "sent again in any case."
    )


_LABEL, _CELL = 24, 9
_RULE = "-" * (_LABEL + (1 + len(KINDS)) * (2 + _CELL))


def _line(label: str, evidence: str, cells: tuple[str, ...], paint: Paint) -> str:
    painted = [paint(f"{cell:{_CELL}}", cell) for cell in cells[:-1]]
    head = paint(f"{label:{_LABEL}}  {evidence:{_CELL}}", "")
    return "  ".join([head, *painted, paint(cells[-1], cells[-1])])


def _ask(endings: list[Ending], *, at: int = 1) -> Consequences:
    """Return what follows if attempt `at` ends like the last of these, and all after it."""
    met: list[Trial] = []
    for method, keyed in KINDS:
        request = trials.request_for(method, keyed=keyed, endings=endings)
        met.append(trials.run(request, endings))
    last = [trial.report.attempts[at - 1] for trial in met if trial.sent(at)][-1]
    return Consequences(last.evidence, tuple(_word(trial, at) for trial in met))


def _word(trial: Trial, at: int) -> str:
    if not trial.sent(at):
        return "-"
    if trial.as_it_was:
        return "as it is"
    return (_AGAIN if trial.sent(at + 1) else _ENDED)[trial.report.outcome]


def _by_status() -> dict[str, Consequences]:
    found: dict[str, Consequences] = {}
    for hundred in (200, 300, 400, 500):
        each = {status: _ask([trials.answer(status)]) for status in range(hundred, hundred + 100)}
        kinds = [*each.values()]
        usual = max(kinds, key=kinds.count)
        # 500 is what everybody looks for.
        others = {s: follows for s, follows in each.items() if follows != usual or s == 500}
        found |= {str(status): follows for status, follows in others.items()}
        found[f"{'other ' if others else ''}{hundred // 100}xx"] = usual
    return found


def _merged(found: Mapping[str, Consequences]) -> list[Row]:
    labels: dict[Consequences, list[str]] = {}
    for label, follows in found.items():
        labels.setdefault(follows, []).append(label)
    return [Row(", ".join(same), follows) for follows, same in labels.items()]


def _is_last(name: str) -> bool:
    # The classes that others derive from are for handlers.
    return not any(ERRORS[name] in found.__mro__[1:] for found in ERRORS.values())


def _answers() -> Iterator[Row]:
    asks = trials.answer(413, ("Retry-After", "1"))
    timeout = trials.error("ReadTimeout")
    recorded = ("Idempotent-Replayed", "true")
    yield Row("413 with Retry-After", _ask([asks]))
    yield Row("503 marked as replayed", _ask([trials.answer(503, recorded)]))
    for status in (401, 404, 409):
        endings = [timeout, trials.answer(status)]
        yield Row(f"{status} after ReadTimeout", _ask(endings, at=2))
