"""One client, several servers, and how patient to be with each of them.

The idea: how long a request may take depends on who waits for it, and whether to repeat it on who
is asked. Both can be told from the URL, so a policy can be a callable: from the request to a
`RetryPolicy`. It is asked once per request (after a redirect: once more, for the new URL), and
what a request says for itself in `extensions={"retry": ...}` is still laid on top.

One transport for all of them shares the connections and the retry budget, which is kept per origin
anyway. (httpx's `mounts` would do as well, where each host should have a transport of its own.)

Run it to see four requests to servers that ask for two minutes, which each of them takes in its own
way (in virtual time):

    python examples/per_host_policies.py
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import httpx

from httpx_safe_retry import Backoff, Clock, RetryPolicy, RetryTransport, get_report
from httpx_safe_retry.testing import LoopbackServer, ServerResponse, VirtualClock

# Somebody looks at a spinner: once more, soon, whatever the server would like.
QUICK = RetryPolicy(max_attempts=2, deadline=2.0, backoff=Backoff(base=0.05, cap=0.2))

# Nobody waits: let the server recover, and follow it for as long as it asks us to wait.
PATIENT = RetryPolicy(
    max_attempts=8,
    deadline=600.0,
    backoff=Backoff(base=1.0, cap=60.0),
    retry_after_max=300.0,
)

# A host that charges for each call, or has a queue of its own.
ONCE = RetryPolicy(max_attempts=1)


@dataclass(frozen=True, slots=True)
class Rule:
    """A policy for some hosts (with their port, unless it is the scheme's own) and paths.

    Both are patterns: `*` stands for anything, slashes and dots included.
    """

    policy: RetryPolicy
    host: str = "*"
    path: str = "*"

    def holds_for(self, url: httpx.URL) -> bool:
        return fnmatchcase(url.netloc.decode(), self.host) and fnmatchcase(url.path, self.path)


def by_rules(rules: Sequence[Rule], default: RetryPolicy) -> Callable[[httpx.Request], RetryPolicy]:
    """Return a policy for `RetryTransport`: that of the first rule that holds."""

    def policy(request: httpx.Request) -> RetryPolicy:
        return next((rule.policy for rule in rules if rule.holds_for(request.url)), default)

    return policy


def new_client(rules: Sequence[Rule], clock: Clock | None = None) -> httpx.Client:
    transport = RetryTransport(policy=by_rules(rules, default=QUICK), clock=clock)
    return httpx.Client(transport=transport)


# What happens -----------------------------------------------------------------------------------

BUSY = ServerResponse(status=503, headers={"Retry-After": "120"})


def show(name: str, response: httpx.Response) -> None:
    report = get_report(response)
    count = len(report.attempts)
    tried = "1 attempt" if count == 1 else f"{count} attempts"
    print(f"{name:<22} {response.status_code} after {tried}, {report.slept:.2f} s of waiting")


def main() -> None:
    clock = VirtualClock()
    with LoopbackServer(BUSY, BUSY) as sms, LoopbackServer(*[BUSY] * 4) as api:
        rules = [
            Rule(ONCE, host=httpx.URL(sms.url).netloc.decode()),  # or: host="sms.example.com"
            Rule(PATIENT, path="/reports/*"),
        ]
        with new_client(rules, clock) as client:
            show("SMS", client.put(f"{sms.url}/messages/7"))
            show("orders", client.get(f"{api.url}/orders/7"))
            show("reports", client.get(f"{api.url}/reports/2031"))
            again = {"retry": {"max_attempts": 2, "retry_after_max": 300.0}}
            show("SMS, if asked for it", client.put(f"{sms.url}/messages/7", extensions=again))


if __name__ == "__main__":
    logging.getLogger("httpx_safe_retry").setLevel(logging.ERROR)
    main()
