"""Find out what became of a write that nobody answered, where the server knows no idempotency keys.

The idea: send a reference of your own with each order, and after an `UncertainWriteError` look for
it. Found: it happened, go on with that. Not found means nothing yet: the request may lie in a
queue, or be at work. Only when it is not found *after the longest time that the server gives a
request* did it not happen, and may be sent again.

That time is a promise of the server's, like a key would be. It must cover all that lies on the way
(proxies, queues, the server's own timeout) and how late the lookup may see what was stored, so ask
for a lookup that does not read from a replica or a cache. Where nobody gives you such a promise,
never send again: leave the order to a person.

A sending that is refused after an uncertain one settles nothing: a server that takes each reference
once answers 409 *because* the first one was taken. So look once more, and if nothing is found, it
stays uncertain.

Store the reference before you send, as `payments_client.py` does with its keys: after a crash, look
for it first.

Run it to see a server that takes the order and loses the answer, one that loses the order, and one
that takes it long after its client has given up (in virtual time):

    python examples/reconcile_uncertain.py
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from httpx_safe_retry import (
    RetryError,
    RetryPolicy,
    RetryTransport,
    UncertainWriteError,
    raise_for_outcome,
)
from httpx_safe_retry.testing import (
    Fault,
    LoopbackServer,
    ServerRequest,
    ServerResponse,
    VirtualClock,
)


@dataclass(frozen=True, slots=True)
class Order:
    number: str
    reference: str


class NotCreatedError(Exception):
    """The order did not happen, however often it was sent."""


class OrdersClient:
    """settled_after: seconds after which the server has done a request, or never will."""

    def __init__(
        self,
        http: httpx.Client,
        *,
        settled_after: float,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._http = http
        self._settled_after = settled_after
        self._now = now
        self._sleep = sleep

    def create(self, reference: str, item: str, *, sendings: int = 3) -> Order:
        """Create an order, once: it is sent again only when it is certain that it did not happen.

        Raises `UncertainWriteError` if that could not be found out. After `NotCreatedError` and any
        other `RetryError` it did not happen.
        """
        doubt: UncertainWriteError | None = None
        for _ in range(sendings):
            refusal: RetryError | None = None
            try:
                response = self._http.post("/orders", json={"reference": reference, "item": item})
                raise_for_outcome(response)
                return Order(**response.json())
            except UncertainWriteError as error:
                doubt = error
            except RetryError as error:
                if doubt is None:
                    raise
                refusal = error
            try:
                found = self.settle(reference)
            except Exception:
                # Whatever became of the lookup, it is the order that is uncertain.
                raise doubt from refusal or doubt.__cause__
            if found is not None:
                return found
            if refusal is not None or doubt.report.executed:
                # Refused, perhaps as a second one, or confirmed, and yet not to be found: the
                # lookup can't be relied on.
                raise doubt from refusal or doubt.__cause__
        raise NotCreatedError(reference)

    def settle(self, reference: str) -> Order | None:
        """Look for an order until it is there, or never will be: then None. Also after a crash.

        Raises `RetryError` if the server can't be asked, which says nothing about the order.
        """
        # From now, not from when it was sent: never too early.
        settled = self._now() + self._settled_after
        pause = 0.5
        while True:
            # Before the lookup: what is stored while it runs must not be missed.
            is_settled = self._now() >= settled
            found = self.find(reference)
            if found is not None or is_settled:
                return found
            self._sleep(min(pause, max(settled - self._now(), 0)))
            pause = min(pause * 2, 10.0)

    def find(self, reference: str) -> Order | None:
        """Look for an order now. Raises `RetryError` like `settle`."""
        response = self._http.get("/orders", params={"reference": reference})
        raise_for_outcome(response)
        return next((Order(**order) for order in response.json()), None)


# What happens -----------------------------------------------------------------------------------

SETTLED_AFTER = 30.0


class OrdersServer:
    """Takes orders, the first one perhaps `late` seconds after it came."""

    def __init__(self, clock: VirtualClock, *, late: float = 0.0) -> None:
        self._clock = clock
        self._late = late
        self._orders: list[tuple[float, Order]] = []

    def __call__(self, request: ServerRequest) -> ServerResponse:
        if request.method == "POST":
            reference = json.loads(request.body)["reference"]
            order = Order(f"N-{len(self._orders) + 1}", reference)
            self._orders.append((self._clock.monotonic() + self._late, order))
            self._late = 0.0
            return ServerResponse(status=201, body=as_json(order).encode())
        wanted = httpx.URL(request.path).params["reference"]
        found = [as_json(order) for order in self.taken() if order.reference == wanted]
        return ServerResponse(body=f"[{','.join(found)}]".encode())

    def taken(self) -> list[Order]:
        now = self._clock.monotonic()
        return [order for when, order in self._orders if when <= now]


def as_json(order: Order) -> str:
    return json.dumps({"number": order.number, "reference": order.reference})


def order(title: str, fault: Fault, *, late: float = 0.0) -> None:
    clock = VirtualClock()
    orders = OrdersServer(clock, late=late)
    requests: list[httpx.Request] = []
    with (
        LoopbackServer(fault, handler=orders) as server,
        httpx.Client(
            base_url=server.url,
            transport=RetryTransport(policy=RetryPolicy(deadline=10.0), clock=clock),
            event_hooks={"request": [requests.append]},
        ) as http,
    ):
        client = OrdersClient(
            http, settled_after=SETTLED_AFTER, now=clock.monotonic, sleep=clock.advance
        )
        created = client.create("ref-7130", "a bread")
    sent = sum(request.method == "POST" for request in requests)
    looked = len(requests) - sent
    print(f"{title}: sent {sent}, looked up {looked}, known after {clock.monotonic():.1f} s:")
    print(f"   {created}; orders on the server: {len(orders.taken())}")


def main() -> None:
    order("It took the order and lost the answer", Fault())
    order("It lost the order", Fault(request_bytes=20))
    order("It took the order 20 s later", Fault(), late=20.0)


if __name__ == "__main__":
    logging.getLogger("httpx_safe_retry").setLevel(logging.ERROR)
    main()
