"""Metrics: as the endpoint /metrics declares them."""

from __future__ import annotations

from qbull.api.metrics import METRICS
from reference.cells import code, table


def page() -> str:
    rows = [
        (code(metric.name), metric.kind, ", ".join(map(code, metric.labels)), metric.help)
        for metric in METRICS
    ]
    return f"""# Metrics

What `/metrics` says; the guide is [Metrics](../guides/metrics.md). A histogram has `_bucket`, `_sum` and `_count`.

{table(("metric", "kind", "labels", "meaning"), rows)}"""
