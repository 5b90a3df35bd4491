"""Retry-After: what a server asks for, in seconds, or why it is not followed.

The rule: the form is checked first, arithmetic comes after. The whole value is either `1*DIGIT` or
one of the three HTTP-dates (RFC 9110 sections 10.2.3 and 5.6.7). The standard library's parsers
would also take `1e3`, `-5`, other digits than ASCII's, dates in other zones or in none, so none of
them sees what the grammar has not let through.

A value that is not followed is an anomaly and never an error, since a server's slip is no reason to
fail a request: the caller backs off on its own, and the operator finds the reason in the log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

__all__ = ["RetryAfter", "parse_retry_after"]

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

# A cache reads delta-seconds out of range as "the greatest positive integer it can conveniently
# represent" (RFC 9111 section 1.2.2), and so do we: a float counts exactly as far as 2^53.
_LONGEST = 2.0**53

_DELAY_SECONDS = re.compile(r"[0-9]+")

# "HTTP-date is case sensitive", and its times run to 23:59:60 (RFC 9110 section 5.6.7): a leap
# second ends a UTC day, and HTTP-dates are UTC.
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_DAY_LONG = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_TIME = r"(?P<time>[0-9]{2}:[0-9]{2}:[0-5][0-9]|23:59:60)"
_IMF_FIXDATE = rf"{_DAY}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT"
_RFC850_DATE = rf"{_DAY_LONG}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT"
_ASCTIME_DATE = rf"{_DAY} {_MONTH} (?P<day>[0-9]{{2}}| [0-9]) {_TIME} (?P<year>[0-9]{{4}})"
_HTTP_DATES = tuple(re.compile(form) for form in (_IMF_FIXDATE, _RFC850_DATE, _ASCTIME_DATE))

_EXCERPT = 40


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """One Retry-After field as it was understood: exactly one of the two is not None.

    `seconds` is the wait that the server asks for (finite, >= 0). `anomaly` says in a few words of
    printable ASCII why the value is not followed.
    """

    seconds: float | None
    anomaly: str | None


def parse_retry_after(
    values: Sequence[str], *, now: float, date: str | None = None
) -> RetryAfter | None:
    """Read Retry-After (RFC 9110 section 10.2.3); None when the response has no such field.

    `values` are the field's lines, `now` is Unix time in seconds, `date` is the response's own Date
    field. A date is measured against `date`, which the same clock wrote, and only without a valid
    one against `now`: a wrong local clock does no harm. No string makes this raise.
    """
    if not values:
        return None
    if len(values) > 1:
        # Not a list field: it must not come twice (RFC 9110 section 5.3), and nothing tells which
        # line is meant.
        return RetryAfter(None, "several values")
    value = _without_ows(values[0])
    if not value:
        return RetryAfter(None, "empty")
    if _DELAY_SECONDS.fullmatch(value):
        # Unlike `int`, `float` takes digits without end: in linear time, past its range as inf.
        return RetryAfter(min(float(value), _LONGEST), None)
    reference = now if date is None else _http_date(_without_ows(date), now)
    if reference is None:
        reference = now
    moment = _http_date(value, reference)
    if moment is None:
        return RetryAfter(None, f"malformed: {_excerpt(value)}")
    if moment < reference:
        return RetryAfter(None, f"in the past: {_excerpt(value)}")
    return RetryAfter(moment - reference, None)


def _without_ows(value: str) -> str:
    # RFC 9110 section 5.6.3. Without an argument, strip() takes newlines and Unicode's blanks too.
    return value.strip(" \t")


def _http_date(value: str, reference: float) -> float | None:
    """The Unix time of an HTTP-date in any of its three forms, or None.

    `reference`, a Unix time, settles the century of a two-digit year. A wrong name of the day is
    passed over: it adds nothing to the date, recipients are "encouraged to be robust" (section
    5.6.7), and to drop such a date would mean to come back sooner than the server asked.
    """
    for form in _HTTP_DATES:
        match = form.fullmatch(value)
        if match is not None:
            break
    else:
        return None
    month = _MONTHS.index(match["month"]) + 1
    day = int(match["day"])
    hour, minute, second = map(int, match["time"].split(":"))
    year = int(match["year"])
    leap = second // 60
    try:
        if len(match["year"]) == 2:
            year = _full_year(year, (month, day, hour, minute, second), reference)
        moment = datetime(year, month, day, hour, minute, second - leap, tzinfo=timezone.utc)
    except (ValueError, OverflowError):
        # 30 February, 24 o'clock, the year 0, a local clock outside the years of `datetime`.
        return None
    return (moment - _EPOCH).total_seconds() + leap


def _full_year(digits: int, rest: tuple[int, int, int, int, int], reference: float) -> int:
    """The latest year with these last two digits that is not more than 50 years in the future.

    RFC 9110 section 5.6.7: a timestamp "that appears to be more than 50 years in the future" MUST
    be read as "the most recent year in the past that had the same last two digits". Putting the
    current century in front would be wrong on New Year's Eve of 2099, when 00 is tomorrow.
    """
    present = _EPOCH + timedelta(seconds=reference)
    horizon = (present.year + 50, *present.timetuple()[1:6])
    year = horizon[0] - (horizon[0] - digits) % 100
    return year if (year, *rest) <= horizon else year - 100


def _excerpt(value: str) -> str:
    """The value's beginning, made safe for log lines and terminals: a stranger wrote it."""
    shown = "".join(char if " " <= char <= "~" else "?" for char in value[:_EXCERPT])
    return f"'{shown}'" if len(value) <= _EXCERPT else f"'{shown}'..."
