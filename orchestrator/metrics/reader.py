"""MetricsReader: reads all metrics of one Redis and prefix, as Prometheus scrapes them.

`/metrics` of the web page and `orchestrator exporter` both use it. It only reads. The number of
its commands depends on the number of streams, queues and workers, and not on that of executions.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from orchestrator.application.errors import StoreError
from orchestrator.diagnosis.snapshot import RedisSnapshot
from orchestrator.metrics.counters import read_counters
from orchestrator.metrics.families import gauge
from orchestrator.metrics.gauges import read_gauges
from orchestrator.metrics.memory import read_memory
from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.keys import Keys

logger = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsReader(Collector):
    def __init__(self, client: Client, keys: Keys) -> None:
        self._client, self._keys = client, keys
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def describe(self) -> list[Metric]:
        """None: without this, to register it would read all metrics."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics. If Redis cannot be read, only `up`, which is 0 then: half of the numbers would be
        taken for all of them."""
        try:
            families = list(self._read())
        except (StoreError, RedisError) as error:
            logger.warning("cannot read the metrics: %s", error)
            families = []
        yield gauge("up", "Whether Redis could be read.", int(bool(families)))
        yield from families

    def _read(self) -> Iterator[Metric]:
        snapshot = RedisSnapshot(self._client, self._keys)
        yield from read_counters(self._client, self._keys)
        yield from read_gauges(snapshot)
        yield from read_memory(self._client, self._keys)

    def render(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
