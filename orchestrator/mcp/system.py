"""A system as the tools see it: one Redis and prefix, the user of the server, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from orchestrator.client import Client
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.record_queries import RecordQueries
from orchestrator.settings import Settings
from orchestrator.wiring import make_client, make_keys

DEFAULT_USER = "mcp"


@dataclass(frozen=True)
class System:
    """One Redis and prefix. `user` is recorded with every control, and named in the log of this process."""

    settings: Settings
    user: str = DEFAULT_USER
    is_read_only: bool = False

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
