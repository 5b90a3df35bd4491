"""The typed errors, and how they take on the class of their cause.

    Exception
     +- RetryError                   a request ended without success (itself: it was cancelled)
         +- UncertainWriteError      a write may have happened
         +- RetriesExhaustedError    transient, but a limit ended it
         +- DeadlineExceededError    transient, but time ended it
         +- PermanentFailureError    sending the same again can't help

What is raised is also an instance of the class that plain httpx would have raised: after a read
timeout `except UncertainWriteError` and `except httpx.ReadTimeout` both catch it. Where a response
stands behind it (`raise_for_outcome`), that class is `httpx.HTTPStatusError`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ._outcome import Outcome
from ._report import RetryReport

if TYPE_CHECKING:
    import httpx


class RetryError(Exception):
    """A request ended without success.

    `report` tells how, `request` is the caller's own, `response` the last answer, or None where the
    last attempt ended in an error. The real error, with its traceback, is `__cause__`.
    """

    report: RetryReport
    request: httpx.Request
    response: httpx.Response | None

    def __reduce__(self) -> tuple[Any, ...]:
        # The class may be one that was made at run time, which pickle can't find by name.
        kind, cause = _parts(type(self))
        return _rebuild, (kind, cause, self.args, self.__dict__)


class UncertainWriteError(RetryError):
    """A write may have happened, and nobody knows, or it did happen and its answer was lost.

    `report.executed` tells which; `report.replay_safe` whether sending the same again is safe.
    """


class RetriesExhaustedError(RetryError):
    """A transient failure that a limit ended: attempts, budget, body, or the server's own wish.

    A write that ended like this did not happen.
    """


class DeadlineExceededError(RetryError):
    """A transient failure that the deadline ended. A write that ended like this did not happen."""


class PermanentFailureError(RetryError):
    """A failure that sending the same again can't mend. A write that ended like this did not
    happen.
    """


_KINDS: dict[Outcome, type[RetryError]] = {
    Outcome.UNCERTAIN_WRITE: UncertainWriteError,
    Outcome.EXHAUSTED: RetriesExhaustedError,
    Outcome.DEADLINE_EXCEEDED: DeadlineExceededError,
    Outcome.PERMANENT_FAILURE: PermanentFailureError,
    Outcome.CANCELLED: RetryError,
}


def error_for(
    report: RetryReport,
    request: httpx.Request,
    *,
    cause: Exception | None = None,
    response: httpx.Response | None = None,
) -> RetryError:
    """Make the typed error for a failed request.

    It takes on the class and the attributes of `cause`; without one, httpx's class for a bad
    status, if there is a `response`, or else for a timeout: that leaves a deadline that let nothing
    be sent.
    """
    if cause is not None:
        base = _parts(type(cause))[1] or type(cause)
    else:
        base = _library_class(
            request, "TimeoutException" if response is None else "HTTPStatusError"
        )
    message = report.summary()
    if cause is not None and report.attempts and report.attempts[-1].error_text:
        message = f"{message} ({report.attempts[-1].error_text})"
    state = {} if cause is None else dict(vars(cause))
    state.pop("_request", None)
    error = _rebuild(_KINDS[report.outcome], base, (message,), state)
    error.report, error.request, error.response = report, request, response
    return error


def get_report(response: httpx.Response) -> RetryReport:
    """Return the report of a response that came through a `RetryTransport`.

    Raises `LookupError` for a response that did not.
    """
    report = response.extensions.get("retry")
    if not isinstance(report, RetryReport):
        raise LookupError(
            "this response carries no retry report: it did not come through a RetryTransport, or "
            "it was pickled, which drops a response's extensions"
        )
    return report


def raise_for_outcome(response: httpx.Response) -> httpx.Response:
    """Raise the typed error for a response that is not a success; return the response otherwise.

    Raises `UncertainWriteError`, `RetriesExhaustedError`, `DeadlineExceededError` or
    `PermanentFailureError` (each also an `httpx.HTTPStatusError`), and `LookupError` like
    `get_report`.
    """
    report = get_report(response)
    if report.outcome is not Outcome.SUCCESS:
        raise error_for(report, response.request, response=response)
    return response


_combinations: dict[tuple[type[RetryError], type[BaseException]], type[RetryError]] = {}


def _combined(kind: type[RetryError], base: type[BaseException]) -> type[RetryError]:
    found = _combinations.get((kind, base))
    if found is None:
        names = {"__module__": kind.__module__, "__doc__": kind.__doc__}
        try:
            found = type(kind.__name__, (kind, base), names)
        except TypeError:
            # Two exception classes that are both laid out in C can't be one.
            found = kind
        _combinations[kind, base] = found
    return found


def _parts(cls: type[BaseException]) -> tuple[type[Any], type[BaseException] | None]:
    # A combined class has just these two bases; every other error is its own kind.
    if issubclass(cls, RetryError) and len(cls.__bases__) == 2:
        return cls.__bases__[0], cls.__bases__[1]
    return cls, None


def _rebuild(
    kind: type[RetryError],
    base: type[BaseException] | None,
    args: tuple[Any, ...],
    state: dict[str, Any],
) -> RetryError:
    cls = kind if base is None else _combined(kind, base)
    # The base's own __init__ is not called: a subclass of somebody else's may take other arguments.
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def _library_class(request: httpx.Request, name: str) -> type[BaseException]:
    # The library whose request this is, without importing it: the core serves any of httpx's kin.
    for cls in type(request).__mro__:
        found: object = getattr(sys.modules.get(cls.__module__), name, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found
    return Exception
