"""Retry-After by tables, and against dates that the standard library wrote."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from httpx_safe_retry._retry_after import RetryAfter, parse_retry_after

THEN = "Thu, 25 Jun 2020 21:30:12 GMT"
NOW = datetime(2020, 6, 25, 21, 28, 12, tzinfo=timezone.utc).timestamp()

# POSIX rules, so that no time zone database is needed. Both halves of the year, both sides of UTC.
ZONES = ["UTC0", "EST5EDT,M3.2.0,M11.1.0", "NPT-5:45", "AEST-10AEDT,M10.1.0,M4.1.0/3", "LINT-14"]


def unix(*fields: int) -> float:
    year, month, day, hour, minute, second = fields
    return datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc).timestamp()


def parse(value: str, *, now: float = NOW, date: str | None = None) -> RetryAfter:
    parsed = parse_retry_after([value], now=now, date=date)
    assert parsed is not None
    return parsed


@pytest.fixture(params=ZONES, scope="module")
def _zone(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        _read_zone_again()
        yield
    _read_zone_again()


def _read_zone_again() -> None:
    if sys.platform != "win32":  # it reads TZ once, when the process starts
        time.tzset()


# By hand: what the RFC and the cases say


def test_a_response_without_the_field_asks_for_nothing() -> None:
    assert parse_retry_after([], now=NOW) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("5", 5),
        (" 5 ", 5),
        ("\t5 \t", 5),
        ("120", 120),
        ("007", 7),
        ("1593120612", 1593120612),
        (str(2**53), 2**53),
    ],
)
def test_digits_are_seconds(value: str, seconds: float) -> None:
    assert parse(value) == RetryAfter(seconds, None)


@pytest.mark.parametrize(
    "value", ["9" * 17, "1" + "0" * 400, "9" * 5000, "0" * 5000 + "9" * 5000, str(2**53 + 1)]
)
def test_digits_without_end_are_the_longest_wait_that_a_float_counts(value: str) -> None:
    assert parse(value) == RetryAfter(2.0**53, None)


@pytest.mark.parametrize(
    "value",
    [
        "9" * 1_000_000,
        "0" * 1_000_000,
        " " * 1_000_000 + "x",
        "Thu, " * 200_000,
        THEN + " " * 1_000_000 + "x",
        "\u0663" * 1_000_000,
    ],
)
def test_a_value_of_a_megabyte_is_read_at_once(value: str) -> None:
    start = time.perf_counter()
    parse(value, date=value)
    # Milliseconds. Anything quadratic would take minutes, so that a busy machine does not matter.
    assert time.perf_counter() - start < 5


@pytest.mark.usefixtures("_zone")
@pytest.mark.parametrize(
    "value", [THEN, "Thursday, 25-Jun-20 21:30:12 GMT", "Thu Jun 25 21:30:12 2020"]
)
def test_a_date_in_any_of_the_three_forms_is_utc_in_every_zone(value: str) -> None:
    assert parse(value) == RetryAfter(120, None)
    assert parse("Thu, 25 Jun 2020 21:30:13 GMT", date=value) == RetryAfter(1, None)


def test_asctime_writes_a_day_below_ten_with_a_blank_or_a_zero() -> None:
    now = unix(2020, 6, 2, 21, 28, 12)
    for value in ("Tue Jun  2 21:30:12 2020", "Tue Jun 02 21:30:12 2020"):
        assert parse(value, now=now) == RetryAfter(120, None)


@pytest.mark.parametrize("clock", [0.0, NOW - 86400, NOW, NOW + 3600, 1e20, -1e20])
@pytest.mark.parametrize(
    "date",
    [
        "Thu, 25 Jun 2020 21:28:12 GMT",
        " Thu, 25 Jun 2020 21:28:12 GMT\t",
        "Thu Jun 25 21:28:12 2020",
    ],
)
def test_with_the_servers_own_date_a_wrong_local_clock_does_no_harm(
    date: str, clock: float
) -> None:
    for value in (THEN, "Thursday, 25-Jun-20 21:30:12 GMT"):
        assert parse(value, now=clock, date=date) == RetryAfter(120, None)


@pytest.mark.parametrize(
    "date",
    [
        "",
        "now",
        "5",
        "Thu, 25 Jun 2020 22:28:12",
        "Thu, 31 Jun 2020 22:28:12 GMT",
        f"{THEN}, {THEN}",
    ],
)
def test_a_date_field_that_is_none_leaves_the_local_clock(date: str) -> None:
    assert parse(THEN, date=date) == RetryAfter(120, None)


def test_seconds_do_not_depend_on_any_clock() -> None:
    assert parse("5", now=math.nan, date=THEN) == RetryAfter(5, None)


def test_a_date_is_awaited_to_the_fraction_of_the_local_clock() -> None:
    assert parse(THEN, now=NOW + 0.25) == RetryAfter(119.75, None)


def test_a_date_that_is_now_is_a_wait_of_nothing() -> None:
    assert parse(THEN, date=THEN) == RetryAfter(0, None)


@pytest.mark.parametrize(
    ("now", "date"),
    [(NOW + 3720, None), (NOW + 120.001, None), (0, "Thu, 25 Jun 2020 21:30:13 GMT")],
)
def test_a_date_in_the_past_is_an_anomaly(now: float, date: str | None) -> None:
    assert parse(THEN, now=now, date=date) == RetryAfter(None, f"in the past: '{THEN}'")


def test_a_leap_second_is_the_second_after_59() -> None:
    now = unix(2016, 12, 31, 23, 59, 59)
    for value in (
        "Sat, 31 Dec 2016 23:59:60 GMT",
        "Saturday, 31-Dec-16 23:59:60 GMT",
        "Sat Dec 31 23:59:60 2016",
    ):
        assert parse(value, now=now) == RetryAfter(1, None)


def test_a_wrong_name_of_the_day_is_passed_over() -> None:
    assert parse("Mon, 25 Jun 2020 21:30:12 GMT") == RetryAfter(120, None)


@pytest.mark.parametrize(
    "value",
    [
        "1 Jan 2099 00:00:00",
        "Thu, 25 Jun 2020 21:30:12 XYZ",
        "nan",
        "inf",
        "-5",
        "1e3",
        "+3",
        "0.503",
        "5s",
        "5 5",
        "1_000",
        "0x10",
        "5, 10",
        f"{THEN}, {THEN}",
        f"5, {THEN}",
        # other digits, other blanks
        "\u0665",
        "\uff15",
        "\xb2",
        "5\n",
        "\x0b5",
        "\xa05",
        "5\x00",
        # nearly a date
        "Thu, 25 Jun 2020 21:30:12",
        "Thu, 25 Jun 2020 21:30:12 UTC",
        "Thu, 25 Jun 2020 21:30:12 +0000",
        "Thu, 25 Jun 2020 21:30:12 GMT\n",
        "Thu, 25 Jun 2020 21:30:12 gmt",
        "thu, 25 Jun 2020 21:30:12 GMT",
        "Thu, 25 JUN 2020 21:30:12 GMT",
        "Thu,  25 Jun 2020 21:30:12 GMT",
        "Thu, 5 Jun 2020 21:30:12 GMT",
        "Thu, 25 Jun 20 21:30:12 GMT",
        "Thu, 25 Jun 2020 21:30 GMT",
        "Thursday, 25 Jun 2020 21:30:12 GMT",
        "Thursday, 25-Jun-2020 21:30:12 GMT",
        "Thu, 25-Jun-20 21:30:12 GMT",
        "Thu Jun 25 21:30:12 2020 GMT",
        "Thu Jun 5 21:30:12 2020",
        "Thu, 2\u0665 Jun 2020 21:30:12 GMT",
        # no such time
        "Thu, 00 Jun 2020 21:30:12 GMT",
        "Thu, 31 Jun 2020 21:30:12 GMT",
        "Mon, 29 Feb 2021 21:30:12 GMT",
        "Thu, 25 Jun 0000 21:30:12 GMT",
        "Thu, 25 Jun 2020 24:00:00 GMT",
        "Thu, 25 Jun 2020 21:60:12 GMT",
        "Thu, 25 Jun 2020 21:30:60 GMT",
        "Thu, 25 Jun 2020 23:59:61 GMT",
        "2020-06-25T21:30:12Z",
    ],
)
def test_what_is_neither_digits_nor_an_http_date_is_malformed(value: str) -> None:
    parsed = parse(value)
    assert parsed.seconds is None
    assert parsed.anomaly is not None
    assert parsed.anomaly.startswith("malformed: ")


@pytest.mark.parametrize("value", ["", " ", " \t "])
def test_an_empty_value_is_an_anomaly(value: str) -> None:
    assert parse(value) == RetryAfter(None, "empty")


@pytest.mark.parametrize("values", [["5", "5"], ["5", "10"], ["", "5"], [THEN, THEN]])
def test_several_field_lines_are_an_anomaly(values: list[str]) -> None:
    assert parse_retry_after(values, now=NOW) == RetryAfter(None, "several values")


def test_an_anomaly_shows_the_beginning_of_a_hostile_value_and_nothing_that_could_act() -> None:
    value = "\x1b[2J\r\nroot \u202e: ".ljust(41, "a")
    shown = "?[2J??root ?: ".ljust(40, "a")
    assert parse(value) == RetryAfter(None, f"malformed: '{shown}'...")
    assert parse(value[:40]) == RetryAfter(None, f"malformed: '{shown}'")


# The century of a two-digit year


@pytest.mark.parametrize(
    ("now", "value", "meant"),
    [
        # 50 years ahead are not "more than 50 years in the future"; a second later is
        ((2020, 6, 25, 21, 28, 12), "Wednesday, 25-Jun-70 21:28:12 GMT", (2070, 6, 25, 21, 28, 12)),
        ((2020, 6, 25, 21, 28, 12), "Thursday, 25-Jun-70 21:28:13 GMT", (1970, 6, 25, 21, 28, 13)),
        ((2020, 6, 25, 21, 28, 12), "Sunday, 06-Nov-94 08:49:37 GMT", (1994, 11, 6, 8, 49, 37)),
        ((2020, 6, 25, 21, 28, 12), "Friday, 31-Dec-71 23:59:60 GMT", (1972, 1, 1, 0, 0, 0)),
        # the century turns
        ((1999, 12, 31, 23, 59, 59), "Saturday, 01-Jan-00 00:00:01 GMT", (2000, 1, 1, 0, 0, 1)),
        ((2099, 12, 31, 23, 59, 59), "Friday, 01-Jan-00 00:00:01 GMT", (2100, 1, 1, 0, 0, 1)),
        ((2000, 1, 1, 0, 0, 1), "Friday, 31-Dec-99 23:59:59 GMT", (1999, 12, 31, 23, 59, 59)),
        # from a leap day, 50 years ahead is no date
        ((2020, 2, 29, 0, 0, 0), "Friday, 28-Feb-70 23:59:59 GMT", (2070, 2, 28, 23, 59, 59)),
        ((2020, 2, 29, 0, 0, 0), "Sunday, 01-Mar-70 00:00:00 GMT", (1970, 3, 1, 0, 0, 0)),
    ],
)
def test_a_two_digit_year_is_at_most_50_years_in_the_future(
    now: tuple[int, ...], value: str, meant: tuple[int, ...]
) -> None:
    # As the Date field, where a moment in the past can be seen too.
    later = datetime.fromtimestamp(unix(*meant), timezone.utc) + timedelta(seconds=7)
    parsed = parse(format_datetime(later, usegmt=True), now=unix(*now), date=value)
    assert parsed == RetryAfter(7, None)


@pytest.mark.parametrize("now", [1e20, -1e20, math.inf, -math.inf, math.nan])
def test_a_clock_outside_the_calendar_can_not_settle_a_century(now: float) -> None:
    parsed = parse("Thursday, 25-Jun-20 21:30:12 GMT", now=now)
    assert parsed == RetryAfter(None, "malformed: 'Thursday, 25-Jun-20 21:30:12 GMT'")


# Against the standard library's writing

moments = st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31)).map(
    lambda moment: moment.replace(microsecond=0, tzinfo=timezone.utc)
)
HALF_A_CENTURY = timedelta(days=50 * 365)


def imf_fixdate(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


def rfc850_date(moment: datetime) -> str:
    return moment.strftime("%A, %d-%b-%y %H:%M:%S GMT")


def asctime_date(moment: datetime) -> str:
    return time.asctime(moment.timetuple())


Writer = Callable[[datetime], str]
full_dates = st.sampled_from([imf_fixdate, asctime_date])


@pytest.mark.usefixtures("_zone")
@given(moment=moments, reference=moments, write=full_dates, write_date=full_dates, now=st.floats())
def test_every_date_is_measured_against_the_servers_date_whatever_the_local_clock_and_zone(
    moment: datetime, reference: datetime, write: Writer, write_date: Writer, now: float
) -> None:
    parsed = parse(write(moment), now=now, date=write_date(reference))
    if moment >= reference:
        assert parsed == RetryAfter((moment - reference).total_seconds(), None)
    else:
        assert parsed == RetryAfter(None, f"in the past: '{write(moment)}'")


@given(
    moment=st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),
    distance=st.timedeltas(-HALF_A_CENTURY, HALF_A_CENTURY),
)
def test_every_two_digit_year_within_50_years_is_read_as_it_was_meant(
    moment: datetime, distance: timedelta
) -> None:
    moment = moment.replace(microsecond=0, tzinfo=timezone.utc)
    now = moment - distance
    later = imf_fixdate(moment + timedelta(seconds=7))
    parsed = parse(later, now=now.timestamp(), date=rfc850_date(moment))
    assert parsed == RetryAfter(7, None)


@given(seconds=st.integers(0, 2**53), zeros=st.integers(0, 30), now=st.floats())
def test_every_number_of_seconds_is_read_exactly(seconds: int, zeros: int, now: float) -> None:
    assert parse("0" * zeros + str(seconds), now=now) == RetryAfter(seconds, None)


@given(values=st.lists(st.text(), min_size=1), now=st.floats(), date=st.none() | st.text())
def test_no_text_raises_or_ends_in_anything_but_a_wait_or_a_printable_reason(
    values: list[str], now: float, date: str | None
) -> None:
    parsed = parse_retry_after(values, now=now, date=date)
    assert parsed is not None
    if parsed.seconds is None:
        assert parsed.anomaly is not None
        assert re.fullmatch("[ -~]{1,60}", parsed.anomaly)
    else:
        assert parsed.anomaly is None
        assert 0 <= parsed.seconds < math.inf


@st.composite
def nearly_dates(draw: st.DrawFn) -> str:
    """A date of one of the forms in which one or two characters were changed."""
    moment = draw(st.datetimes(datetime(2020, 1, 1), datetime(2069, 12, 31)))
    value = draw(st.sampled_from([imf_fixdate, rfc850_date, asctime_date]))(
        moment.replace(microsecond=0, tzinfo=timezone.utc)
    )
    for _ in range(draw(st.integers(1, 2))):
        digits = [at for at, char in enumerate(value) if char.isdigit()]
        at = draw(st.sampled_from(digits) | st.sampled_from(range(len(value))))
        new = draw(st.sampled_from("0123456789") | st.sampled_from(["", *" :,-+aGMT\t\n\u0663"]))
        value = value[:at] + new + value[at + 1 :]
    return value


@settings(max_examples=500)  # a quarter of them are still dates
@given(value=nearly_dates())
def test_what_is_taken_for_a_date_is_written_back_as_the_same_date(value: str) -> None:
    now = unix(2020, 1, 1, 0, 0, 0)
    parsed = parse(value, now=now)
    if parsed.seconds is None:
        return
    # The standard library writes no leap second.
    meant = datetime.fromtimestamp(now + parsed.seconds - value.count("23:59:60"), timezone.utc)
    written = [write(meant) for write in (imf_fixdate, rfc850_date, asctime_date)]
    written.append(meant.strftime("%a %b %d %H:%M:%S %Y"))  # asctime with 02 instead of " 2"
    as_read = value.strip(" \t").replace("23:59:60", "23:59:59")
    assert without_name(as_read) in map(without_name, written)


def without_name(date: str) -> str:
    return re.sub("^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)([a-z]*day)?", "", date)
