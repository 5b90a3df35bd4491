"""The command line: what would happen, and why, asked of the library itself.

Everything it prints fits in 80 columns and is ASCII. Colour is for terminals alone, and `NO_COLOR`
(no-color.org) switches it off.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TextIO

from . import _foretell, _table
from . import _trials as trials
from ._foretell import Paint, Question
from ._overrides import PolicyChanges
from ._policy import DEFAULT_POLICY
from ._trials import Ending

_PROG = "python -m httpx_safe_retry"

_EXAMPLES = f"""\
examples:
  {_PROG} explain POST --key --status 503
  {_PROG} explain POST --error ReadTimeout
  {_PROG} explain GET --status 429 --retry-after 120
  {_PROG} explain DELETE --after ReadTimeout --status 404
  {_PROG} table
"""

_WIDTH = 80


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. Exits with 2 for what it can't answer."""
    # An uncertain write is a warning; without a handler, Python would print it between our lines.
    logging.getLogger("httpx_safe_retry").addHandler(logging.NullHandler())
    parser, explain = _parsers()
    options = parser.parse_args(arguments)
    paint = _painter(sys.stdout, os.environ)
    if options.command == "table":
        lines = [*_table.lines(paint)]
    else:
        try:
            lines = [*_foretell.lines(_asked(options), paint)]
        except ValueError as error:
            explain.error(str(error))
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        return 1  # whoever reads has seen enough
    return 0


# Arguments ----------------------------------------------------------------------------------------


def _parsers() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    parser = argparse.ArgumentParser(
        _PROG,
        description="Show what httpx-safe-retry does, and why. Nothing is sent.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    words = "print the whole decision table"
    commands.add_parser("table", help=words, description=f"{words.capitalize()}.")
    words = "say what follows when an attempt ends in some way"
    explain = commands.add_parser(
        "explain",
        help=words,
        description=f"{words.capitalize()}.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    explain.add_argument("method", metavar="METHOD", type=_method, help="GET, POST, ...")
    explain.add_argument("--key", action="store_true", help="it carries an Idempotency-Key")
    explain.add_argument(
        "--idempotent", choices=("yes", "no"), help="what the operation is declared to be"
    )
    came = explain.add_mutually_exclusive_group(required=True)
    came.add_argument("--status", type=_status, metavar="N", help="the status that came back")
    came.add_argument("--error", type=_error, metavar="NAME", help="or the class of httpx's error")
    explain.add_argument(
        "--retry-after", metavar="VALUE", help="the answer's Retry-After: seconds or an HTTP date"
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


def _method(text: str) -> str:
    if not (text.isascii() and text.replace("-", "").isalpha()):
        raise argparse.ArgumentTypeError(f"{text!r} is no HTTP method")
    return text.upper()


def _status(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) == 3 and text >= "100"):
        raise argparse.ArgumentTypeError(f"{text!r} is no status: 100 to 999")
    return int(text)


def _error(text: str) -> Ending:
    if text not in trials.ERRORS:
        known = textwrap.fill(", ".join(trials.ERRORS), _WIDTH - 2)
        raise argparse.ArgumentTypeError(
            f"{text!r} is no error that an attempt ends in. Those are:\n"
            + textwrap.indent(known, "  ")
        )
    return trials.error(text)


def _earlier(text: str) -> Ending:
    return trials.answer(_status(text)) if text[:1].isdecimal() else _error(text)


def _asked(options: argparse.Namespace) -> Question:
    """Return what was asked; `ValueError` for what goes together with nothing."""
    headers: list[tuple[str, str]] = []
    if options.retry_after is not None:
        if options.status is None:
            raise ValueError("--retry-after belongs to an answer: it needs --status")
        headers.append(("Retry-After", options.retry_after))
    last: Ending = options.error or trials.answer(options.status, *headers)
    changes: PolicyChanges = {}
    if options.max_attempts is not None:
        changes["max_attempts"] = options.max_attempts
    if options.idempotent is not None:
        changes["idempotent"] = options.idempotent == "yes"
    policy = DEFAULT_POLICY.replace(**changes)
    return Question(options.method, options.key, policy, (*options.after, last))


# Colours ------------------------------------------------------------------------------------------

_COLOURS = {
    "title": "1",
    "success": "32",
    "retry": "36",
    "retry (?)": "33",
    "uncertain": "31",
    "uncertain_write": "31",
}


def _painter(stream: TextIO, environment: Mapping[str, str]) -> Paint:
    if not _colourful(stream, environment):
        return lambda text, word: text

    def paint(text: str, word: str) -> str:
        code = _COLOURS.get(word)
        return text if code is None else f"\x1b[{code}m{text}\x1b[0m"

    return paint


def _colourful(stream: TextIO, environment: Mapping[str, str]) -> bool:
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    return stream.isatty() and environment.get("TERM") != "dumb"
