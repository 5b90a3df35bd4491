"""What a terminal is shown: lines of ASCII that fit in 80 columns, and colour where it is wanted.

Colour is for terminals alone, and `NO_COLOR` (no-color.org) switches it off.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from typing import NoReturn, TextIO

WIDTH = 80
"""Columns of a line."""

Paint = Callable[[str, str], str]
"""Gives a text the colour of a word."""


def wrapped(text: str, width: int = WIDTH, *, indent: str = "") -> list[str]:
    """Return the lines of a text, all but the first behind `indent`."""
    # A number stays with its unit.
    together = re.sub(r"(?<=\d) (?=s\b)", "\0", text)
    lines = textwrap.wrap(together, width, subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]


def plain(text: str) -> str:
    """Return a text in printable ASCII, with escapes for whatever else somebody typed."""
    return "".join(
        char if char.isascii() and (char.isprintable() or char == "\n") else ascii(char)[1:-1]
        for char in text
    )


# Colours ------------------------------------------------------------------------------------------

_COLOURS = {
    "title": "1",
    "success": "32",
    "retry": "36",
    "retry (?)": "33",
    "uncertain": "31",
    "uncertain_write": "31",
}


def painter(stream: TextIO | None, environment: Mapping[str, str]) -> Paint:
    """Return what gives texts their colour, or leaves them as they are, for what is written to."""
    if stream is None or not _colourful(stream, environment):
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


# Output -------------------------------------------------------------------------------------------


def show(text: str, *, program: str) -> None:
    """Print it. Exits with 1 if that can't be, in silence if the reader has seen enough."""
    # Python makes it None where the descriptor is closed, and `print` then says nothing.
    if sys.stdout is None:
        sys.exit(f"{program}: there is no standard output to write to")
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _give_up()
    except OSError as error:
        _give_up("\n".join(wrapped(f"{program}: can't write the answer: {error.strerror}")))


def _give_up(words: str | int = 1) -> NoReturn:
    # At its exit Python would write once more what is left, and complain again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(words)
