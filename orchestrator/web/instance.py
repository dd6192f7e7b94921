"""An instance: one Redis and one prefix that the page shows, with the clients to read and control it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property

from starlette.requests import HTTPConnection

from orchestrator.client import Client
from orchestrator.client.controls import Controls
from orchestrator.client.replies import Replies
from orchestrator.diagnosis.checks import Check
from orchestrator.diagnosis.doctor import run_checks
from orchestrator.metrics.reader import MetricsReader
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.dead_letters import DeadLetters
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.failures import Failures
from orchestrator.redis_rq.queries.inspection import Inspection
from orchestrator.redis_rq.queries.listing import Listing
from orchestrator.redis_rq.queries.record_queries import RecordQueries
from orchestrator.settings import Settings
from orchestrator.wiring import check_settings, make_client, make_keys

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Instance:
    """One Redis and prefix. `name` is the first part of its paths if the page shows several instances."""

    name: str
    settings: Settings

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(
                f"the name of an instance has 1 to 64 letters, digits, '_' or '-', not {self.name!r}"
            )
        check_settings(self.settings)

    @classmethod
    def of(
        cls,
        name: str,
        redis_url: str | None = None,
        prefix: str | None = None,
        settings: Settings | None = None,
    ) -> Instance:
        """An instance with these settings, or those of the environment; a URL and a prefix replace theirs."""
        settings = settings if settings is not None else Settings.from_environment()
        changed = replace(
            settings, redis_url=redis_url or settings.redis_url, prefix=prefix or settings.prefix
        )
        return cls(name, changed)

    @cached_property
    def redis(self) -> RedisClient:
        return connect(self.settings.redis_url)

    @cached_property
    def keys(self) -> Keys:
        return make_keys(self.settings)

    @cached_property
    def client(self) -> Client:
        return make_client(self.settings, self.redis)

    @cached_property
    def queries(self) -> RecordQueries:
        return RecordQueries(self.redis, self.keys)

    @cached_property
    def listing(self) -> Listing:
        return Listing(self.redis, self.keys)

    @cached_property
    def failures(self) -> Failures:
        return Failures(self.redis, self.keys, self.client.store)

    @cached_property
    def controls(self) -> Controls:
        return Controls(self.redis, self.keys, Replies(self.redis, self.keys))

    @cached_property
    def inspection(self) -> Inspection:
        return Inspection(self.redis, self.keys)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        return DeadLetters(self.redis, self.keys)

    @cached_property
    def metrics(self) -> MetricsReader:
        return MetricsReader(self.redis, self.keys)

    def run_checks(self) -> list[Check]:
        return run_checks(self.redis, self.keys)


def instance_of(request: HTTPConnection) -> Instance:
    found: Instance = request.state.instance
    return found
