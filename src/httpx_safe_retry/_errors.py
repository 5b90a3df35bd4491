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
from types import BuiltinFunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ._outcome import Outcome, StopReason
from ._report import RetryReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx


class RetryError(Exception):
    """A request ended without success.

    `report` tells how, `request` is the caller's own, `response` the last answer, or None where the
    last attempt ended in an error. The real error, with its traceback, is `__cause__`.
    """

    report: RetryReport
    # Any: they are those of the library that the client is of.
    request: httpx.Request | Any
    response: httpx.Response | Any | None

    # Also where the other class words its own: that may show anything, or fail without what its
    # own __init__ would have set.
    __str__ = Exception.__str__
    __repr__ = Exception.__repr__

    def __reduce__(self) -> tuple[Any, ...]:
        # The class may be one that was made at run time, which pickle can't find by name.
        return _make, (*_parts(type(self)), self.args, _members(self), vars(self))


class UncertainWriteError(RetryError):
    """A write may have happened, and nobody knows, or it did and no usable answer came back.

    `report.executed` tells which; `report.replay_safe` whether sending the same again is safe.
    """


class RetriesExhaustedError(RetryError):
    """A transient failure that a limit ended: attempts, budget, body, or the server's own wish.

    A write that ended like this did not happen.
    """


class DeadlineExceededError(RetryError):
    """A transient failure that the deadline ended. A write that ended like this did not happen."""


class PermanentFailureError(RetryError):
    """A failure that sending the same again can't mend. A write did not happen."""


_KINDS: dict[Outcome, type[RetryError]] = {
    Outcome.UNCERTAIN_WRITE: UncertainWriteError,
    Outcome.EXHAUSTED: RetriesExhaustedError,
    Outcome.DEADLINE_EXCEEDED: DeadlineExceededError,
    Outcome.PERMANENT_FAILURE: PermanentFailureError,
    Outcome.CANCELLED: RetryError,
}


def error_for(
    report: RetryReport,
    request: Any,
    *,
    cause: Exception | None = None,
    response: Any = None,
) -> RetryError:
    """Make the typed error for a failed request.

    It takes on the class and the attributes of `cause`. Without one it is an `HTTPStatusError` if
    there is a `response`, or else what ended it before anything was sent: a `TimeoutException` if
    that was the deadline, a `TransportError` if it was cancelled.
    """
    if cause is not None:
        base = _parts(type(cause))[1] if isinstance(cause, RetryError) else type(cause)
    elif response is not None:
        base = _library_class(request, "HTTPStatusError")
    elif report.stop_reason is StopReason.DEADLINE:
        base = _library_class(request, "TimeoutException")
    else:
        base = _library_class(request, "TransportError")
    message = report.summary()
    if report.attempts and report.attempts[-1].error_text:
        message = f"{message} ({report.attempts[-1].error_text})"
    own = {"report": report, "request": request, "response": response}
    if cause is None:
        return _make(_KINDS[report.outcome], base, (message,), {}, own)
    attributes = {name: value for name, value in vars(cause).items() if name != "_request"}
    return _make(_KINDS[report.outcome], base, (message,), _members(cause), {**attributes, **own})


class ResponseLike(Protocol):
    """What the responses of httpx and of its kin have in common."""

    @property
    def extensions(self) -> Mapping[str, Any]: ...

    @property
    def request(self) -> Any: ...


AnyResponse = TypeVar("AnyResponse", bound=ResponseLike)


def get_report(response: ResponseLike) -> RetryReport:
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


def raise_for_outcome(response: AnyResponse) -> AnyResponse:
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
    if issubclass(kind, base):
        return kind
    found = _combinations.get((kind, base))
    if found is None:
        # Plain attributes, since a property that the base has of these names would come first.
        own = dict.fromkeys(RetryError.__annotations__)
        names = {"__module__": kind.__module__, "__doc__": kind.__doc__, "_parts": (kind, base)}
        found = type(kind.__name__, (kind, base), {**names, **own})
        found = _combinations.setdefault((kind, base), found)
    return found


def _parts(cls: type[RetryError]) -> tuple[type[RetryError], type[BaseException]]:
    """Return of which two classes an error's class was combined."""
    parts: tuple[type[RetryError], type[BaseException]] = vars(cls).get("_parts", (cls, Exception))
    return parts


def _make(
    kind: type[RetryError],
    base: type[BaseException],
    args: tuple[Any, ...],
    members: dict[str, Any],
    attributes: dict[str, Any],
) -> RetryError:
    try:
        cls = _combined(kind, base)
        # Neither __init__ nor a __new__ of the base's own is called: they may take other arguments.
        new = next(
            found
            for found in (vars(parent).get("__new__") for parent in cls.__mro__)
            if isinstance(found, BuiltinFunctionType)
        )
        error: RetryError = new(cls, *args)
        for name, value in {**members, "args": args}.items():
            object.__setattr__(error, name, value)
    except Exception:
        # Some classes can't be combined, or not be made without their own arguments. What they
        # derive from can.
        return _make(kind, base.__mro__[1], args, {}, attributes)
    vars(error).update(attributes)
    return error


def _members(error: BaseException) -> dict[str, Any]:
    """Return what an error holds outside its `__dict__`: slots, or the `errno` of an OSError."""
    return {
        name: getattr(error, name)
        for cls in type(error).__mro__
        for name, member in vars(cls).items()
        if isinstance(member, MemberDescriptorType) and hasattr(error, name)
    }


def _library_class(request: object, name: str) -> type[BaseException]:
    # The library whose request this is, without importing it: the core serves any of httpx's kin.
    for cls in reversed(type(request).__mro__):
        found: object = getattr(sys.modules.get(cls.__module__), name, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found
    return Exception
