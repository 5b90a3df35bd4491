"""What one API wants: a frozen value, checked when it is made.

Nothing in here changes while requests run. State (budget, clock, listeners) belongs to the
transport.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from ._backoff import Backoff
from ._checks import (
    check_boolean,
    check_choice,
    check_header_name,
    check_integer,
    check_known,
    check_seconds,
    checked_members,
)
from ._outcome import StopReason, Verdict

if TYPE_CHECKING:
    import httpx
    from typing_extensions import Unpack

    from ._overrides import PolicyChanges

SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE", "QUERY")
"""Methods that ask for no change (RFC 9110 section 9.2.1; QUERY: its own specification)."""

IDEMPOTENT_METHODS = (*SAFE_METHODS, "PUT", "DELETE")
"""Methods that mean the same once and twice (RFC 9110 section 9.2.2)."""

# The same core serves httpx's kin, whose classes are others. The second half lets in a function
# that is annotated with those; the first tells an editor what a lambda is given.
Classify = (
    Callable[["httpx.Request", "httpx.Response | Exception"], Verdict | None]
    | Callable[[Any, Any], Verdict | None]
)
DelayHint = Callable[["httpx.Response"], float | None] | Callable[[Any], float | None]

_DEFAULT_BACKOFF = Backoff()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When, how often and for how long a request is sent again. All durations are seconds.

    A bad value is refused here, with a message that names the field: `TypeError` for a value of the
    wrong kind, `ValueError` for one out of range. `replace` derives a policy from another.

    max_attempts: how often the request may be sent in all, the first time included.
    deadline: total time for the logical request, waits included. None: no limit of ours.
    min_attempt_time: a retry that would have less time than this left is not started.
    backoff: the waits where the server names none: a `Backoff`, or a callable from the number of
        the retry (1 for the first) to seconds.
    statuses: answers that are plausibly transient. Any int is accepted.
    refusal_statuses: answers by which the server says that it did not run the request. They are
        transient as well, and even an unkeyed write may be sent again after them.
    idempotent_methods: methods that may be sent twice.
    idempotent: declares what the operation really is, over what its method hints at.
    idempotency_headers: headers that make a request keyed; names in any case. The first is the one
        that `idempotency_key` sets.
    idempotency_key: makes the key of a POST or PATCH that carries none. Called once per logical
        request, before the first attempt; every attempt carries the same key. Opt in only where the
        server honours such keys: to one that doesn't, a keyed request is not safe to repeat. You
        don't get to see the key: set your own where you may have to send the same again later.
    classify: called with the request and the response or error of each attempt; returns a
        `Verdict`, or None for the usual one. Bodies within `prefetch` are readable.
    respect_retry_after: whether a valid Retry-After replaces the backoff.
    delay_hint: reads the wait out of a response that is going to be retried; seconds, or None.
        Treated like Retry-After, and asked first.
    retry_after_max: the longest such wait that is followed.
    retry_after_over: what becomes of a longer one: "clamp" it, "stop", or use the "backoff".
    retry_after_past_deadline: what becomes of one that ends past the deadline: "backoff" or "stop".
    retry_after_jitter: a random part of up to this much, on top of such a wait.
    offline: whether "network unreachable" is transient.
    replay_memory, replay_limit: how many bytes of a one-shot body are kept in memory, and in all.
    prefetch: a response of known length up to this many bytes is read within the attempt, so that a
        connection lost in its body is retried too. 0: off.
    attempt_header: name of a header that tells the server the number of the attempt, on retries.
    deadline_header: name of a header that tells the server the milliseconds that are left.
    raise_on_failure: raise the typed error for a response that is not a success, too.
    """

    max_attempts: int = 3
    deadline: float | None = None
    min_attempt_time: float = 0.0
    backoff: Backoff | Callable[[int], float] = _DEFAULT_BACKOFF
    statuses: Collection[int] = (408, 429, 502, 503, 504)
    refusal_statuses: Collection[int] = (429,)
    idempotent_methods: Collection[str] = IDEMPOTENT_METHODS
    idempotent: bool | None = None
    idempotency_headers: Sequence[str] = ("Idempotency-Key",)
    idempotency_key: Callable[[], str] | None = None
    classify: Classify | None = None
    respect_retry_after: bool = True
    delay_hint: DelayHint | None = None
    retry_after_max: float = 60.0
    retry_after_over: Literal["clamp", "stop", "backoff"] = "clamp"
    retry_after_past_deadline: Literal["backoff", "stop"] = "backoff"
    retry_after_jitter: float = 0.0
    offline: bool = False
    replay_memory: int = 1024 * 1024
    replay_limit: int = 64 * 1024 * 1024
    prefetch: int = 64 * 1024
    attempt_header: str | None = None
    deadline_header: str | None = None
    raise_on_failure: bool = False

    key_names: frozenset[bytes] = field(init=False, repr=False, compare=False)
    """`idempotency_headers` as they are looked up on every write."""

    def __post_init__(self) -> None:
        check_integer("max_attempts", self.max_attempts, least=1)
        if self.deadline is not None:
            check_seconds("deadline", self.deadline, above_zero=True)
        for name in ("min_attempt_time", "retry_after_max", "retry_after_jitter"):
            check_seconds(name, getattr(self, name))
        if not callable(self.backoff) and not isinstance(self.backoff, Backoff):
            raise TypeError(f"backoff must be a Backoff or a callable, not {self.backoff!r}")
        for name in ("statuses", "refusal_statuses"):
            self._set(name, frozenset(checked_members(name, getattr(self, name), int)))
        methods = checked_members("idempotent_methods", self.idempotent_methods, str)
        self._set("idempotent_methods", frozenset(method.upper() for method in methods))
        if self.idempotent is not None:
            check_boolean("idempotent", self.idempotent)
        headers = tuple(checked_members("idempotency_headers", self.idempotency_headers, str))
        for header in headers:
            check_header_name("idempotency_headers", header)
        self._set("idempotency_headers", headers)
        self._set("key_names", frozenset(header.lower().encode("ascii") for header in headers))
        for name in ("idempotency_key", "classify", "delay_hint"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise TypeError(f"{name} must be a callable or None, not {getattr(self, name)!r}")
        if self.idempotency_key is not None and not headers:
            raise ValueError(
                "idempotency_key needs a name in idempotency_headers to set the key under"
            )
        for name in ("respect_retry_after", "offline", "raise_on_failure"):
            check_boolean(name, getattr(self, name))
        check_choice("retry_after_over", self.retry_after_over, ("clamp", "stop", "backoff"))
        check_choice(
            "retry_after_past_deadline", self.retry_after_past_deadline, ("backoff", "stop")
        )
        for name in ("replay_memory", "replay_limit", "prefetch"):
            check_integer(name, getattr(self, name), least=0)
        for name in ("attempt_header", "deadline_header"):
            if getattr(self, name) is not None:
                check_header_name(name, getattr(self, name))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        # What differs from the defaults alone, and sets in order: this is what `help()` and logs
        # show, where two dozen fields would hide the one that counts.
        changed = [
            f"{name}={_shown(value)}"
            for name in FIELDS
            if (value := getattr(self, name)) != getattr(DEFAULT_POLICY, name)
        ]
        return f"RetryPolicy({', '.join(changed)})"

    def replace(self, **changes: Unpack[PolicyChanges]) -> RetryPolicy:
        """Return a policy that differs in `changes`.

        Raises `TypeError` for a name that is no field, and like the constructor for a bad value.
        """
        check_known(changes, FIELDS, "RetryPolicy has no field")
        return replace(self, **changes)


def _shown(value: object) -> str:
    if isinstance(value, frozenset) and value:
        members = sorted(map(repr, cast("frozenset[object]", value)))
        return f"{{{', '.join(members)}}}"
    return f"{value!r}"


DEFAULT_POLICY = RetryPolicy()

FIELDS = tuple(f.name for f in fields(RetryPolicy) if f.init)


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for one request: its policy, whether it is on, and what may cancel waits."""

    policy: RetryPolicy
    enabled: bool = True
    cancel: threading.Event | None = None
    passive: bool = False
    """Whether another layer around this one retries, so that this one must not."""
    covered: bool = False
    """Whether that layer tells of the same request, and has the last word on it."""

    @property
    def active(self) -> bool:
        """Whether anything may be sent again here."""
        return self.enabled and not self.passive

    @property
    def limit(self) -> int:
        """How many attempts there may be."""
        return self.policy.max_attempts if self.active else 1

    @property
    def limit_reason(self) -> StopReason:
        """Which rule that limit is."""
        return StopReason.MAX_ATTEMPTS if self.active else StopReason.DISABLED


def terms_for(policy: RetryPolicy, override: object) -> Terms:
    """Read `extensions["retry"]`: a policy, a mapping of changes (and `cancel`), or None for "off".

    Raises `TypeError` or `ValueError` that name the field.
    """
    if override is None:
        return Terms(policy, enabled=False)
    if isinstance(override, RetryPolicy):
        return Terms(override)
    if not isinstance(override, Mapping):
        raise TypeError(
            'extensions["retry"] must be a RetryPolicy, a mapping of its fields, or None for '
            f"no retries, not {type(override).__name__}"
        )
    changes = dict(cast("Mapping[str, Any]", override))
    check_known(changes, (*FIELDS, "cancel"), 'extensions["retry"] has no field')
    cancel = changes.pop("cancel", None)
    if cancel is not None and not isinstance(cancel, threading.Event):
        raise TypeError(f"cancel must be a threading.Event or None, not {type(cancel).__name__}")
    return Terms(policy.replace(**changes) if changes else policy, cancel=cancel)
