"""The example of metrics for Prometheus: it shows what it promises, and fails when it isn't so."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from httpx_safe_retry import (
    Backoff,
    RequestFinished,
    RetryEvent,
    RetryPolicy,
    RetryScheduled,
    RetryTransport,
)
from httpx_safe_retry.testing import ScriptedTransport
from tests.library import httpx

PROMETHEUS_METRICS = Path(__file__).parent.parent / "examples" / "prometheus_metrics.py"


def test_prometheus_metrics_shows_what_a_scrape_would() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", PROMETHEUS_METRICS],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "# TYPE httpx_attempts histogram" in done.stdout
    assert 'httpx_uncertain_writes_total{host="127.0.0.1",method="POST"} 1.0' in done.stdout
    assert done.stdout.count("[ok]") == 8
    assert done.stdout.endswith("All of it is so.\n")


@pytest.mark.parametrize(
    ("deaf_to", "policy"),
    [
        pytest.param(RetryScheduled, RetryPolicy(), id="retries are not counted"),
        pytest.param(RequestFinished, RetryPolicy(), id="ends are not counted"),
        pytest.param((), RetryPolicy(idempotent=True), id="a payment is sent again"),
        pytest.param((), RetryPolicy(backoff=Backoff(base=0)), id="nothing waits"),
    ],
)
def test_prometheus_metrics_exits_with_1_when(
    deaf_to: Any, policy: RetryPolicy, capsys: pytest.CaptureFixture[str]
) -> None:
    example = loaded()

    whole = example.PrometheusListener

    def listener(registry: CollectorRegistry) -> Callable[[RetryEvent], object]:
        hears = whole(registry)
        return lambda event: None if isinstance(event, deaf_to) else hears(event)

    example.PrometheusListener = listener
    example.POLICY = policy
    with pytest.raises(SystemExit) as ended:
        example.main()
    assert ended.value.code == 1
    assert "[NOT SO]" in capsys.readouterr().out.splitlines()[-1]


def test_a_method_of_a_strangers_making_is_no_label_of_its_own() -> None:
    registry = CollectorRegistry()
    transport = RetryTransport(
        ScriptedTransport(200, 200), listeners=[loaded().PrometheusListener(registry)]
    )
    for method in ("PURGE", "X" * 99):
        transport.handle_request(httpx.Request(method, "https://example.org/"))
    labels = {"method": "other", "host": "example.org"}
    assert registry.get_sample_value("httpx_attempts_count", labels) == 2


def test_a_layer_inside_another_is_not_counted() -> None:
    registry = CollectorRegistry()
    inside = RetryTransport(
        ScriptedTransport(200), listeners=[loaded().PrometheusListener(registry)]
    )
    RetryTransport(inside).handle_request(httpx.Request("GET", "https://example.org/"))
    assert [sample for metric in registry.collect() for sample in metric.samples] == []


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location(PROMETHEUS_METRICS.stem, PROMETHEUS_METRICS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
