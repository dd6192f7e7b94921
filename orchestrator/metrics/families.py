"""Metric families: a name with a help text, and the values under it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

PREFIX = "orchestrator_"
MAX_LABELS = 200
"""How many values a label has at most; commit_metrics.lua has the same number."""

Value = float | int
Labels = TypeVar("Labels", bound=tuple[str, ...])


def gauge(name: str, text: str, value: Value) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def gauges(name: str, text: str, labels: Iterable[str], values: Mapping[Labels, Value]) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=list(labels))
    for own, value in sorted(values.items()):
        family.add_metric(own, value)
    return family


def counter(name: str, text: str, value: Value) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, value=value)


def counters(name: str, text: str, labels: Iterable[str], values: Mapping[Labels, Value]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, text, labels=list(labels))
    for own, value in sorted(values.items()):
        family.add_metric(own, value)
    return family
