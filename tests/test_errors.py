"""The typed errors: caught by all that works on plain httpx, and whole after pickle and copy."""

from __future__ import annotations

import copy
import errno
import importlib
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NoReturn

import pytest

from httpx_safe_retry import (
    DeadlineExceededError,
    Outcome,
    PermanentFailureError,
    RetriesExhaustedError,
    RetryError,
    RetryPolicy,
    RetryReport,
    StopReason,
    UncertainWriteError,
    get_report,
    raise_for_outcome,
)
from httpx_safe_retry._errors import error_for
from httpx_safe_retry.testing import VirtualClock
from tests.library import NAME, RetryTransport, ScriptedTransport, httpcore, httpx
from tests.reports import attempt_of, report_of

REQUEST = httpx.Request("POST", "https://example.org/payments")

KINDS: dict[Outcome, type[RetryError]] = {
    Outcome.UNCERTAIN_WRITE: UncertainWriteError,
    Outcome.EXHAUSTED: RetriesExhaustedError,
    Outcome.DEADLINE_EXCEEDED: DeadlineExceededError,
    Outcome.PERMANENT_FAILURE: PermanentFailureError,
    Outcome.CANCELLED: RetryError,
}


def kinds_of(base: type[httpx.RequestError]) -> Iterator[type[httpx.RequestError]]:
    yield base
    for kind in base.__subclasses__():
        if kind.__module__ == NAME:
            yield from kinds_of(kind)


TRANSPORT_ERRORS = sorted(
    {*kinds_of(httpx.TransportError), httpx.DecodingError, httpx.TooManyRedirects},
    key=lambda kind: kind.__name__,
)


def report_with(text: str | None = None, outcome: Outcome = Outcome.EXHAUSTED) -> RetryReport:
    attempt = attempt_of(status=None, error_type="ReadTimeout", error_text=text)
    return report_of(outcome, attempts=[attempt])


def clones(error: RetryError) -> Iterator[RetryError]:
    yield copy.copy(error)
    yield copy.deepcopy(error)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.loads(pickle.dumps(error, protocol))


def same(one: RetryError, other: RetryError) -> bool:
    pairs = [
        (type(error), str(error), repr(error), error.args, error.report, type(error.response))
        for error in (one, other)
    ]
    requests = [(error.request.method, error.request.url) for error in (one, other)]
    return pairs[0] == pairs[1] and requests[0] == requests[1]


# The class of the cause --------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", KINDS)
@pytest.mark.parametrize("base", TRANSPORT_ERRORS)
def test_every_handler_that_works_on_plain_httpx_still_works(
    base: type[httpx.RequestError], outcome: Outcome
) -> None:
    error = error_for(report_with(outcome=outcome), REQUEST, cause=base("text"))
    for handled in (base, KINDS[outcome], RetryError, httpx.HTTPError):
        with pytest.raises(handled) as caught:
            raise error
        assert caught.value is error
    assert [kind for kind in KINDS.values() if isinstance(error, kind)] == (
        [KINDS[outcome]] if outcome is Outcome.CANCELLED else [KINDS[outcome], RetryError]
    )


@pytest.mark.parametrize("outcome", KINDS)
@pytest.mark.parametrize("base", TRANSPORT_ERRORS)
def test_every_error_survives_pickle_and_copy(
    base: type[httpx.RequestError], outcome: Outcome
) -> None:
    error = error_for(report_with("timed out", outcome), REQUEST, cause=base("text"))
    for clone in clones(error):
        assert same(clone, error)


def test_an_error_shows_as_the_public_class_that_it_is() -> None:
    report = report_with("timed out", Outcome.UNCERTAIN_WRITE)
    error = error_for(report, REQUEST, cause=httpx.ReadTimeout("timed out"))
    (line,) = traceback.format_exception_only(error)
    assert line == f"httpx_safe_retry.UncertainWriteError: {error}\n"
    assert type(error).__doc__ == UncertainWriteError.__doc__


def test_the_message_is_the_summary_and_the_text_of_the_last_error() -> None:
    report = report_with("timed out")
    error = error_for(report, REQUEST, cause=httpx.ReadTimeout("unredacted"))
    assert str(error) == f"{report.summary()} (timed out)"
    silent = report_with(None)
    assert str(error_for(silent, REQUEST, cause=httpx.ReadTimeout(""))) == silent.summary()


def test_the_callers_own_request_is_handed_back() -> None:
    error = error_for(report_with(), REQUEST, cause=httpx.ReadTimeout("", request=REQUEST))
    assert error.request is REQUEST
    # As httpx.Client does with every transport error that passes it.
    other = httpx.Request("GET", "https://example.org/")
    error.request = other
    assert error.request is other
    assert (error.response, error.report) == (None, report_with())


def test_two_errors_alike_are_of_one_class() -> None:
    one, other = (error_for(report_with(), REQUEST, cause=httpx.ReadTimeout("")) for _ in range(2))
    assert type(one) is type(other)


# Without a cause ---------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", KINDS)
def test_what_ended_in_a_response_is_also_a_status_error(outcome: Outcome) -> None:
    response = httpx.Response(503, request=REQUEST, content=b"why")
    error = error_for(report_of(outcome), REQUEST, response=response)
    assert isinstance(error, KINDS[outcome])
    assert isinstance(error, httpx.HTTPStatusError)
    assert error.response is response
    for clone in clones(error):
        assert same(clone, error)
        assert clone.response is not None
        assert (clone.response.status_code, clone.response.content) == (503, b"why")


def test_a_deadline_that_let_nothing_be_sent_is_a_timeout() -> None:
    report = report_of(Outcome.DEADLINE_EXCEEDED, StopReason.DEADLINE, attempts=[])
    error = error_for(report, REQUEST)
    assert isinstance(error, DeadlineExceededError)
    assert isinstance(error, httpx.TimeoutException)


def test_a_cancellation_that_let_nothing_be_sent_is_no_timeout() -> None:
    error = error_for(report_of(Outcome.CANCELLED, StopReason.CANCELLED, attempts=[]), REQUEST)
    assert isinstance(error, RetryError)
    assert isinstance(error, httpx.TransportError)
    assert not isinstance(error, httpx.TimeoutException)


def test_a_request_of_ones_own_class_leads_to_httpx() -> None:
    class Request(httpx.Request):
        """Defined in a module that has an `HTTPStatusError` of its own."""

    request = Request("GET", "https://example.org/")
    error = error_for(report_of(), request, response=httpx.Response(503, request=request))
    assert isinstance(error, httpx.HTTPStatusError)
    assert not isinstance(error, HTTPStatusError)


class HTTPStatusError(Exception):
    """Not httpx's."""


@pytest.mark.parametrize("named_alike", [None, "a word", dict])
def test_a_request_of_another_library_leads_to_no_class_of_httpx(
    monkeypatch: pytest.MonkeyPatch, named_alike: object
) -> None:
    class Request:
        """Some other library's."""

    Request.__module__ = "some.other"
    module = ModuleType("some.other")
    vars(module)["TransportError"] = named_alike
    monkeypatch.setitem(sys.modules, "some.other", module)
    other: Any = Request()
    error = error_for(report_of(), other)
    assert type(error) is RetriesExhaustedError


# Odd causes --------------------------------------------------------------------------------------


class NeedsArguments(httpx.ReadTimeout):  # users name theirs as they like
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class NeedsArgumentsToExist(httpx.ReadTimeout):
    def __new__(cls, code: int, detail: str) -> NeedsArgumentsToExist:
        return super().__new__(cls, detail)

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class Slotted(httpx.ReadTimeout):
    __slots__ = ("code", "never_set")

    def __init__(self, code: int) -> None:
        super().__init__("")
        self.code = code


class Frozen(httpx.ReadTimeout):
    def __init__(self, code: int) -> None:
        vars(self)["code"] = code

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name} is frozen")


class HasThemAlready(httpx.ReadTimeout):
    code = 7

    @property
    def report(self) -> NoReturn:
        raise LookupError

    @property
    def response(self) -> NoReturn:
        raise LookupError


class WordsItself(httpx.ReadTimeout):
    code = 7

    def __str__(self) -> str:
        return f"secret {self.args[5]}"

    def __repr__(self) -> str:
        return f"secret {self.args[5]}"

    def __reduce__(self) -> NoReturn:
        raise TypeError("can't be pickled")


class OfTheSystemError(httpx.ReadTimeout, OSError):
    code = 7

    def __init__(self, number: int) -> None:
        super().__init__("reset")
        self.errno = number


class Registered(httpx.ReadTimeout):
    code: int

    def __init_subclass__(cls, *, code: int) -> None:
        cls.code = code


class Code(Registered, code=7):
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda: NeedsArguments(7, detail="text"),
        lambda: NeedsArgumentsToExist(7, "text"),
        lambda: Slotted(7),
        lambda: Frozen(7),
        lambda: HasThemAlready(""),
        lambda: WordsItself(""),
        lambda: OfTheSystemError(errno.ECONNRESET),
    ],
)
def test_an_odd_cause_keeps_its_class_and_its_attributes(
    make: Callable[[], httpx.ReadTimeout],
) -> None:
    cause: Any = make()
    report = report_with("timed out")
    error: Any = error_for(report, REQUEST, cause=cause)
    for one in (error, *clones(error)):
        assert one.code == cause.code == 7
        assert isinstance(one, type(cause))
        assert isinstance(one, RetriesExhaustedError)
        assert (one.report, one.response) == (report, None)
        assert str(one) == f"{report.summary()} (timed out)"
        assert repr(one) == f"RetriesExhaustedError({str(one)!r})"
        assert one.request.url == REQUEST.url


def test_the_error_number_of_the_system_is_kept() -> None:
    error: Any = error_for(report_with(), REQUEST, cause=OfTheSystemError(errno.ECONNRESET))
    for one in (error, *clones(error)):
        assert one.errno == errno.ECONNRESET
        assert one.args == (report_with().summary(),)


def test_what_a_cause_of_python_itself_holds_is_kept() -> None:
    cause = UnicodeDecodeError("utf-8", b"x", 0, 1, "why")
    error = error_for(report_with(), REQUEST, cause=cause)
    for one in (error, *clones(error)):
        assert isinstance(one, UnicodeDecodeError)
        assert (one.encoding, one.object, one.reason) == ("utf-8", b"x", "why")


@pytest.mark.parametrize("outcome", KINDS)
def test_what_can_not_be_derived_from_leaves_what_it_derives_from(outcome: Outcome) -> None:
    error = error_for(report_with(outcome=outcome), REQUEST, cause=Code(""))
    assert isinstance(error, httpx.ReadTimeout)
    assert isinstance(error, KINDS[outcome])
    assert not isinstance(error, Registered)
    for clone in clones(error):
        assert same(clone, error)


def test_what_can_not_be_made_leaves_what_it_derives_from() -> None:
    # A group can't be made without its members. Python 3.10 has them from a library.
    home = importlib.import_module("builtins" if sys.version_info >= (3, 11) else "exceptiongroup")
    error = error_for(report_with(), REQUEST, cause=home.ExceptionGroup("several", [OSError()]))
    for one in (error, *clones(error)):
        assert isinstance(one, RetriesExhaustedError)
        assert str(one) == report_with().summary()


def test_a_cause_of_another_family_keeps_its_class() -> None:
    error = error_for(report_with(), REQUEST, cause=httpcore.ConnectError("text"))
    assert isinstance(error, httpcore.ConnectError)
    assert isinstance(error, RetriesExhaustedError)


def test_notes_on_the_cause_are_kept() -> None:
    cause = httpx.ReadTimeout("")
    vars(cause)["__notes__"] = ["what I was doing"]
    error = error_for(report_with(), REQUEST, cause=cause)
    assert vars(error)["__notes__"] == ["what I was doing"]


def test_the_error_of_a_layer_inside_gives_way_but_for_the_class_of_its_own_cause() -> None:
    inner = error_for(
        report_with(outcome=Outcome.UNCERTAIN_WRITE), REQUEST, cause=httpx.ReadTimeout("")
    )
    report = report_with(outcome=Outcome.EXHAUSTED)
    error = error_for(report, REQUEST, cause=inner)
    assert isinstance(error, httpx.ReadTimeout)
    assert isinstance(error, RetriesExhaustedError)
    assert not isinstance(error, UncertainWriteError)
    assert error.report is report


class PaymentUnknownError(UncertainWriteError):
    """A user's own."""


class BothError(RetryError, httpx.ReadTimeout):
    """A user's own, with just two bases, as ours have."""


class MixinError(httpx.HTTPError, UncertainWriteError):
    """A user's own, with ours as the second base."""


@pytest.mark.parametrize("kind", [PaymentUnknownError, BothError, MixinError])
def test_an_error_class_of_a_users_own_survives_pickle_and_copy(kind: type[RetryError]) -> None:
    error = kind("text")
    error.report, error.request, error.response = report_of(), REQUEST, None
    for clone in clones(error):
        assert same(clone, error)


def test_a_users_own_error_as_the_cause_says_nothing_about_the_kind() -> None:
    error = error_for(report_of(), REQUEST, cause=PaymentUnknownError("text"))
    assert type(error) is RetriesExhaustedError


# Reports of responses ----------------------------------------------------------------------------


def answered(report: object, status: int = 503) -> httpx.Response:
    return httpx.Response(status, request=REQUEST, extensions={"retry": report})


def test_a_response_gives_its_report() -> None:
    report = report_of()
    assert get_report(answered(report)) is report


@pytest.mark.parametrize("response", [httpx.Response(200), answered(None), answered({"a": 1})])
def test_a_response_that_did_not_come_through_us_is_a_lookup_error(
    response: httpx.Response,
) -> None:
    for function in (get_report, raise_for_outcome):
        with pytest.raises(LookupError, match="did not come through a RetryTransport"):
            function(response)


def test_a_success_is_handed_back() -> None:
    response = answered(report_of(Outcome.SUCCESS, StopReason.DONE), 200)
    assert raise_for_outcome(response) is response


@pytest.mark.parametrize("outcome", KINDS)
def test_a_failure_is_raised_with_its_response(outcome: Outcome) -> None:
    report = report_of(outcome)
    response = answered(report)
    with pytest.raises(KINDS[outcome]) as caught:
        raise_for_outcome(response)
    error = caught.value
    assert isinstance(error, httpx.HTTPStatusError)
    assert (error.report, error.response, error.request) == (report, response, REQUEST)
    assert error.__cause__ is None


def test_a_success_that_the_policy_calls_a_failure_is_raised_too() -> None:
    response = answered(report_of(Outcome.PERMANENT_FAILURE, StopReason.NOT_TRANSIENT), 200)
    with pytest.raises(PermanentFailureError):
        raise_for_outcome(response)


# Secrets -----------------------------------------------------------------------------------------

SECRETS = ["user-7", "pass-7", "token-7", "fragment-7", "bearer-7", "key-7"]


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize(
    "item", [503, httpx.ConnectError(f"could not send {SECRETS}"), httpx.ReadTimeout(SECRETS[-1])]
)
def test_nothing_secret_is_in_any_words_of_an_error(item: int | Exception, made: bool) -> None:
    headers = {"Authorization": "Bearer bearer-7"}
    policy = RetryPolicy(raise_on_failure=True)
    if made:
        policy = policy.replace(idempotency_key=lambda: "key-7")
    else:
        headers["Idempotency-Key"] = "key-7"
    transport = RetryTransport(
        ScriptedTransport(item, item, item), policy=policy, clock=VirtualClock()
    )
    url = "https://user-7:pass-7@example.org/a/path?t=token-7#fragment-7"
    with httpx.Client(transport=transport) as client, pytest.raises(RetryError) as caught:
        client.post(url, headers=headers)
    error = caught.value
    report = error.report
    assert len(report.attempts) == 3
    words = [str(error), repr(error), repr(report), report.summary(), report.explain()]
    words += [str(clone) for clone in clones(error)]
    words += traceback.format_exception_only(error)
    for text in words:
        assert "https://example.org/a/path" in text
        assert [secret for secret in SECRETS if secret in text] == []
