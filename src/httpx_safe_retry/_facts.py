"""What a request is, before anything is sent: a write or not, idempotent or not, keyed or not.

The method is only a hint (RFC 9110 section 9.2.2); what the caller declares stands above it.
"""

from __future__ import annotations

from ._decide import Facts
from ._frozen import FrozenRequest
from ._policy import SAFE_METHODS, RetryPolicy, Terms


def facts_of(frozen: FrozenRequest, policy: RetryPolicy, new_key: str | None) -> Facts:
    """Return what is known of the request. `new_key`: the key that the policy made, if any."""
    return Facts(
        is_write=frozen.method not in SAFE_METHODS or policy.idempotent is False,
        idempotent=_idempotent(frozen, policy),
        keyed=new_key is not None or frozen.has_header(policy.key_names),
    )


def needs_evidence(frozen: FrozenRequest, terms: Terms) -> bool:
    """Whether it can change a decision to know how far the request got.

    Following the trace costs several microseconds, so that only those pay that gain by it: writes
    that may be sent again, and only while they provably did not run.
    """
    return (
        not _idempotent(frozen, terms.policy)
        and terms.limit > 1
        and not frozen.has_header(terms.policy.key_names)
        # In the trace it can't be told from the one that asks a proxy for a tunnel.
        and frozen.method != "CONNECT"
    )


def usable_key(key: object) -> str:
    """Return what `RetryPolicy.idempotency_key` made.

    Raises `TypeError` or `ValueError` for what no server could take as a key.
    """
    if not isinstance(key, str):
        raise TypeError(f"idempotency_key must return a str, not {type(key).__name__}")
    # A field value has no blanks around it (RFC 9110 section 5.5), and h11 refuses one that has.
    if not key or key != key.strip() or not (key.isascii() and key.isprintable()):
        raise ValueError("idempotency_key must return printable ASCII without blanks around it")
    return key


def _idempotent(frozen: FrozenRequest, policy: RetryPolicy) -> bool:
    if policy.idempotent is not None:
        return policy.idempotent
    return frozen.method in policy.idempotent_methods
