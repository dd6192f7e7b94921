"""The samples of a text in the format of Prometheus, as a test compares them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from orchestrator.metrics.reader import MetricsReader
from worlds.redis_world import RedisWorld


class Samples(dict[tuple[str, frozenset[tuple[str, str]]], float]):
    """Values by name and labels. The names have no prefix: samples("executions", status="failed")."""

    def __call__(self, name: str, **labels: str) -> float | None:
        """One value; None if there is no such sample."""
        return self.get((f"orchestrator_{name}", frozenset(labels.items())))

    def of(self, name: str) -> list[dict[str, str]]:
        """The labels of all samples of this name."""
        return [dict(labels) for own, labels in self if own == f"orchestrator_{name}"]

    def total(self, name: str) -> float:
        return sum(value for (own, _), value in self.items() if own == f"orchestrator_{name}")


def parse(text: str) -> Samples:
    """Parse a text; each sample may be there once."""
    found = Samples()
    for key, value in _samples(text):
        assert key not in found, key
        found[key] = value
    return found


def _samples(text: str) -> Iterator[tuple[tuple[str, frozenset[tuple[str, str]]], float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield (sample.name, frozenset(sample.labels.items())), sample.value


def scrape(world: RedisWorld) -> Samples:
    return parse(MetricsReader(world.client, world.keys).render().decode())
