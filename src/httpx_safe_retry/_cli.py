"""The command line: what would happen, and why, asked of the library itself.

Everything it prints, refusals and help included, fits in 80 columns and is ASCII.
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from . import _foretell, _table
from . import _trials as trials
from ._foretell import Question
from ._overrides import PolicyChanges
from ._policy import DEFAULT_POLICY
from ._terminal import WIDTH, painter, plain, show, wrapped
from ._trials import Ending

_PROG = "python -m httpx_safe_retry"

_EXAMPLES = f"""\
examples:
  {_PROG} explain POST --key --status 503
  {_PROG} explain POST --error ReadTimeout
  {_PROG} explain POST --error refused-stream
  {_PROG} explain GET --status 429 --retry-after 120
  {_PROG} explain DELETE --after ReadTimeout --status 404
  {_PROG} table
"""

_MOST_ATTEMPTS = 1000
"""How many are played; more of them would take their time and show nothing new."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. Exits with 2 for what it can't answer, and
    with 1 if its answer can't be written.
    """
    # An uncertain write is a warning; without a handler, Python would print it between our lines.
    logging.getLogger("httpx_safe_retry").addHandler(logging.NullHandler())
    parser, explain = _parsers()
    options = parser.parse_args(arguments)
    paint = painter(sys.stdout, os.environ)
    if options.command == "table":
        lines = [*_table.lines(paint)]
    else:
        try:
            lines = [*_foretell.lines(_asked(options), paint)]
        except ValueError as error:
            explain.error(str(error))
    show("\n".join(lines), program=_PROG)
    return 0


# Arguments ----------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Writes as the rest of this program does."""

    def __init__(self, prog: str, *, description: str, epilog: str | None = None) -> None:
        width = min(WIDTH, shutil.get_terminal_size().columns) - 2
        super().__init__(
            prog,
            description=description,
            epilog=epilog,
            formatter_class=functools.partial(argparse.RawDescriptionHelpFormatter, width=width),
        )

    def print_help(self, file: object = None) -> None:
        # argparse itself says nothing if it can't write.
        show(self.format_help().rstrip("\n"), program=_PROG)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        lines = f"{self.prog}: error: {plain(message)}".splitlines()
        self.exit(2, "".join(f"{part}\n" for line in lines for part in wrapped(line)))


def _parsers() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    parser = _Parser(
        _PROG,
        description="Show what httpx-safe-retry does, and why. Nothing is sent.",
        epilog=_EXAMPLES,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    words = "print the whole decision table"
    commands.add_parser("table", help=words, description=f"{words.capitalize()}.")
    words = "say what follows when an attempt ends in some way"
    explain = commands.add_parser(
        "explain",
        help=words,
        description=f"{words.capitalize()}.",
        epilog=f"{_names()}\n{_EXAMPLES}",
    )
    explain.add_argument("method", metavar="METHOD", type=_method, help="GET, POST, ...")
    explain.add_argument("--key", action="store_true", help="it carries an Idempotency-Key")
    explain.add_argument(
        "--idempotent", choices=("yes", "no"), help="what the operation is declared to be"
    )
    came = explain.add_mutually_exclusive_group(required=True)
    came.add_argument("--status", type=_status, metavar="N", help="the status that came back")
    came.add_argument("--error", type=_error, metavar="NAME", help="or the error: see below")
    explain.add_argument(
        "--retry-after", metavar="VALUE", help="the answer's Retry-After: seconds or an HTTP date"
    )
    explain.add_argument(
        "--replayed", action="store_true", help="the answer has Idempotent-Replayed: true"
    )
    explain.add_argument(
        "--after",
        action="append",
        default=[],
        type=_earlier,
        metavar="N|NAME",
        help="status or error of an attempt before; may be given again",
    )
    explain.add_argument("--max-attempts", type=int, metavar="N", help="the policy's, if not 3")
    return parser, explain


def _names() -> str:
    longest = max(map(len, trials.CASES))
    lines = [
        "errors, by their class in httpx:",
        _listed(trials.ERRORS),
        "",
        "or by more than that, as in the table:",
        *(f"  {name:{longest}}  {case.label}" for name, case in trials.CASES.items()),
    ]
    return "\n".join([*lines, ""])


def _listed(names: Iterable[str]) -> str:
    return "\n".join(wrapped(f"  {', '.join(names)}", indent="  "))


def _method(text: str) -> str:
    if not (text.isascii() and text.replace("-", "").isalpha()):
        raise argparse.ArgumentTypeError(f"{text!r} is no HTTP method")
    return text.upper()


def _status(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) == 3 and text >= "100"):
        raise argparse.ArgumentTypeError(f"{text!r} is no status: 100 to 999")
    return int(text)


def _error(text: str) -> Ending:
    if text in trials.CASES:
        return trials.CASES[text].ending
    if text not in trials.ERRORS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no error that an attempt ends in. Those are:\n"
            f"{_listed([*trials.ERRORS, *trials.CASES])}"
        )
    return trials.error(text)


def _earlier(text: str) -> Ending:
    return trials.answer(_status(text)) if text[:1].isdecimal() else _error(text)


def _asked(options: argparse.Namespace) -> Question:
    """Return what was asked; `ValueError` for what goes together with nothing."""
    headers: list[tuple[str, str]] = []
    if options.retry_after is not None:
        headers.append(("Retry-After", options.retry_after))
    if options.replayed:
        headers.append(("Idempotent-Replayed", "true"))
    if headers and options.status is None:
        option = "--retry-after" if options.retry_after is not None else "--replayed"
        raise ValueError(f"{option} belongs to an answer: it needs --status")
    last: Ending = options.error or trials.answer(options.status, *headers)
    changes: PolicyChanges = {}
    if options.max_attempts is not None:
        if options.max_attempts > _MOST_ATTEMPTS:
            raise ValueError(f"--max-attempts: no more than {_MOST_ATTEMPTS} are played here")
        changes["max_attempts"] = options.max_attempts
    if options.idempotent is not None:
        changes["idempotent"] = options.idempotent == "yes"
    policy = DEFAULT_POLICY.replace(**changes)
    return Question(options.method, options.key, policy, (*options.after, last))
