"""Metrics of retries for Prometheus: a listener to copy, and what a scrape of it shows.

    pip install prometheus-client
    python examples/prometheus_metrics.py

A client calls a service that fails now and then: on a socket of this machine, so that each number
is known beforehand. What is shown is checked; the exit status is 1 if any of it is not so.

What to alert on: any `httpx_uncertain_writes_total` (somebody has to find out what happened), and
the share of `httpx_requests_total` with `stop_reason="budget"`: an origin that is down.
"""

from __future__ import annotations

import logging

import httpx
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from httpx_safe_retry import (
    Backoff,
    Outcome,
    RequestFinished,
    RetryEvent,
    RetryPolicy,
    RetryScheduled,
    UncertainWriteError,
    wrap_client,
)
from httpx_safe_retry.testing import Fault, LoopbackServer

# To copy ----------------------------------------------------------------------------------------

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"})


class PrometheusListener:
    """Counts requests by how they ended, and what retries took.

    Each host is time series of its own: leave that label out where strangers choose the hosts.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        where = ("method", "host")
        self.requests = Counter(
            "httpx_requests",
            "How they ended",
            (*where, "outcome", "stop_reason"),
            registry=registry,
        )
        self.attempts = Histogram(
            "httpx_attempts", "Per request", where, registry=registry, buckets=(1, 2, 3, 5, 10)
        )
        self.retries = Counter(
            "httpx_retries", "By what went wrong", (*where, "why"), registry=registry
        )
        self.slept = Counter("httpx_slept_seconds", "Between attempts", where, registry=registry)
        self.uncertain = Counter(
            "httpx_uncertain_writes", "They may have happened", where, registry=registry
        )

    def __call__(self, event: RetryEvent) -> None:
        if event.passive:  # told by the layer around it, too
            return
        where = (event.method if event.method in METHODS else "other", httpx.URL(event.url).host)
        if isinstance(event, RetryScheduled):
            why = event.attempt.error_type or str(event.attempt.status)
            self.retries.labels(*where, why).inc()
        elif isinstance(event, RequestFinished):
            report = event.report
            self.requests.labels(*where, report.outcome, report.stop_reason).inc()
            self.attempts.labels(*where).observe(len(report.attempts))
            self.slept.labels(*where).inc(report.slept)
            if report.outcome is Outcome.UNCERTAIN_WRITE:
                self.uncertain.labels(*where).inc()


# What happens -----------------------------------------------------------------------------------

POLICY = RetryPolicy(backoff=Backoff(base=0.01, jitter="none"))


def call_the_service(registry: CollectorRegistry) -> None:
    lost = Fault()  # the request is executed; then the connection is closed without an answer
    with LoopbackServer(200, 503, lost, 200, 404, lost) as server:
        client = wrap_client(
            httpx.Client(), policy=POLICY, listeners=[PrometheusListener(registry)]
        )
        with client:
            client.get(f"{server.url}/at-once")
            client.get(f"{server.url}/at-the-third-attempt")
            client.get(f"{server.url}/missing")
            try:
                client.post(f"{server.url}/payments")
            except UncertainWriteError:
                print("A payment may have happened, or not.\n")


def main() -> None:
    registry = CollectorRegistry()
    call_the_service(registry)
    lines = generate_latest(registry).decode().splitlines()
    print(*(line for line in lines if "_created" not in line), "", sep="\n")

    get = {"method": "GET", "host": "127.0.0.1"}
    post = {"method": "POST", "host": "127.0.0.1"}
    done = {"outcome": "success", "stop_reason": "done"}
    missing = {"outcome": "permanent_failure", "stop_reason": "not_transient"}
    uncertain = {"outcome": "uncertain_write", "stop_reason": "not_replay_safe"}
    for what, name, labels, value in (
        ("two GETs succeeded", "httpx_requests_total", {**get, **done}, 2),
        ("one found nothing", "httpx_requests_total", {**get, **missing}, 1),
        ("the three took five attempts", "httpx_attempts_sum", get, 5),
        ("two of them at the first attempt", "httpx_attempts_bucket", {**get, "le": "1.0"}, 2),
        ("one retry after a 503", "httpx_retries_total", {**get, "why": "503"}, 1),
        ("one POST is uncertain", "httpx_requests_total", {**post, **uncertain}, 1),
        ("and counted for the alert", "httpx_uncertain_writes_total", post, 1),
    ):
        check(what, registry.get_sample_value(name, labels) == value)
    slept = registry.get_sample_value("httpx_slept_seconds_total", get)
    check("there was a wait before each of two retries", slept is not None and slept >= 0.03)
    print("\nAll of it is so.")


# How it is shown --------------------------------------------------------------------------------


def check(what: str, is_so: bool) -> None:
    print(f"   [ok] {what}" if is_so else f"   [NOT SO] {what}")
    if not is_so:
        raise SystemExit(1)


if __name__ == "__main__":
    logging.getLogger("httpx_safe_retry").setLevel(logging.ERROR)
    main()
