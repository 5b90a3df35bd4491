"""Bad input, refused by name: every message says which field it is about and what is allowed there.

`TypeError` for a value of the wrong kind, `ValueError` for one out of range.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any


def check_known(changes: Mapping[Any, Any], names: Iterable[str], complaint: str) -> None:
    """Refuse names of fields that there are not."""
    unknown = [repr(name) for name in changes if name not in names]
    if unknown:
        raise TypeError(f"{complaint} {', '.join(unknown)}; the fields are {', '.join(names)}")


def check_integer(name: str, value: object, *, least: int) -> None:
    """Refuse anything but an int of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")


def check_seconds(name: str, value: object, *, above_zero: bool = False) -> None:
    """Raise `TypeError` or `ValueError`, naming the field, for anything but a duration."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}")
    try:
        finite = math.isfinite(value)
    except OverflowError:  # an int that no float can hold
        finite = False
    if not finite or value < 0 or (above_zero and value == 0):
        least = "above 0" if above_zero else "0 or more"
        raise ValueError(f"{name} must be a finite number of seconds, {least}, not {value}")


def check_boolean(name: str, value: object) -> None:
    """Refuse anything but True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")


def check_instance(name: str, value: object, kind: type[Any]) -> None:
    """Refuse anything but a `kind`."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be of type {kind.__name__}, not {value!r}")


def check_methods(name: str, value: object, *methods: str) -> None:
    """Refuse anything but an object (not a class) that can be called under these names."""
    if isinstance(value, type) or not all(callable(getattr(value, one, None)) for one in methods):
        raise TypeError(f"{name} must be an object with {', '.join(methods)}, not {value!r}")


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse anything but one of `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def checked_members(name: str, value: object, kind: type[Any]) -> list[Any]:
    """Return the members of a collection of `kind`; refuse anything else."""
    # A lone string is iterable too, and would silently become a set of letters.
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a collection of {kind.__name__}, not {value!r}")
    members: list[Any] = [*value]
    for member in members:
        if not isinstance(member, kind) or isinstance(member, bool):
            raise TypeError(f"{name} must hold {kind.__name__} only, not {member!r}")
    return members


_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def check_header_name(name: str, value: object) -> None:
    """Refuse anything but a header name."""
    # A field name is a token (RFC 9110 section 5.1): anything else fails on the wire, or splits it.
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a header name, not {value!r}")
    if not value or not _TOKEN.issuperset(value):
        raise ValueError(f"{name} must be a header name (RFC 9110 section 5.1), not {value!r}")
