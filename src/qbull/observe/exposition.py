"""Exposition: metrics in the format of Prometheus. Each is declared once with kind, labels and meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from qbull.core.histograms import Histogram

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Metric:
    """A metric. `labels` are those of all its samples, in order; without "le" for a histogram."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


@dataclass
class MetricSamples:
    """The samples of one scrape, metric by metric."""

    _lines: dict[Metric, list[str]] = field(default_factory=dict)

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        named = dict(zip(metric.labels, labels, strict=True))
        self._of(metric).append(f"{metric.name}{_labels(named)} {_number(value)}")

    def add_histogram(self, metric: Metric, histogram: Histogram, *labels: str) -> None:
        named = dict(zip(metric.labels, labels, strict=True))
        lines = self._of(metric)
        for upper, count in histogram.buckets():
            lines.append(f"{metric.name}_bucket{_labels({**named, 'le': _number(upper)})} {count}")
        lines.append(f"{metric.name}_bucket{_labels({**named, 'le': '+Inf'})} {histogram.count}")
        lines.append(f"{metric.name}_sum{_labels(named)} {_number(histogram.sum)}")
        lines.append(f"{metric.name}_count{_labels(named)} {histogram.count}")

    def text(self) -> str:
        return "".join(_family(metric, lines) for metric, lines in self._lines.items())

    def _of(self, metric: Metric) -> list[str]:
        return self._lines.setdefault(metric, [])


def _family(metric: Metric, lines: Iterable[str]) -> str:
    head = f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"
    return head + "".join(f"{line}\n" for line in lines)


def _labels(named: Mapping[str, str]) -> str:
    if not named:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in named.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
