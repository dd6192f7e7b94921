"""Settings: the environment, read once."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from orchestrator.application.errors import StoreError
from orchestrator.application.spec.model import ID_RULE, is_id
from orchestrator.application.spec.tag_routes import TAGS_VARIABLE, TagRoutes
from orchestrator.payload_stores import PayloadSettings
from orchestrator.redis_rq.backlog import MAX_BACKLOG
from orchestrator.redis_rq.event_log import GRACE_MS, MAX_QUEUED
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.store import RETENTION_S
from orchestrator.worker.lease import LEASE_S

T = TypeVar("T", int, float)


@dataclass(frozen=True, slots=True)
class Settings:
    """Each has a variable ORCHESTRATOR_<NAME>, and what the command line says comes first."""

    redis_url: str = "redis://localhost:6379/0"
    prefix: str = "orchestrator"
    executors: tuple[str, ...] = ()
    partitions: int = 8
    lease_s: float = LEASE_S
    grace_ms: int = GRACE_MS
    retention_s: int = RETENTION_S
    tags: TagRoutes = field(default_factory=TagRoutes)
    max_backlog: int = MAX_BACKLOG
    max_queued: int = MAX_QUEUED

    @property
    def keys(self) -> Keys:
        return Keys(self.prefix, self.partitions)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        default = cls()
        _check_payloads(environment)

        def read(name: str, fallback: str) -> str:
            return environment.get(f"ORCHESTRATOR_{name}", fallback)

        return cls(
            redis_url=read("REDIS_URL", default.redis_url),
            prefix=_prefix(read("PREFIX", default.prefix)),
            executors=tuple(name.strip() for name in read("EXECUTORS", "").split(",") if name.strip()),
            partitions=_number("PARTITIONS", read("PARTITIONS", str(default.partitions)), int),
            lease_s=_number("LEASE_S", read("LEASE_S", str(default.lease_s)), float),
            grace_ms=_number("GRACE_MS", read("GRACE_MS", str(default.grace_ms)), int),
            retention_s=_number("RETENTION_S", read("RETENTION_S", str(default.retention_s)), int),
            tags=_tags(read("TAGS", "")),
            max_backlog=_number("MAX_BACKLOG", read("MAX_BACKLOG", str(default.max_backlog)), int),
            max_queued=_number("MAX_QUEUED", read("MAX_QUEUED", str(default.max_queued)), int),
        )


class BadSetting(ValueError):
    """A variable of the environment holds something that cannot be used."""


def _prefix(text: str) -> str:
    if not is_id(text):
        raise BadSetting(f"ORCHESTRATOR_PREFIX {ID_RULE}, not {text!r}")
    return text


def _tags(text: str) -> TagRoutes:
    try:
        return TagRoutes.parse(text)
    except ValueError as error:
        raise BadSetting(f"{TAGS_VARIABLE}: {error}") from None


def _check_payloads(environment: Mapping[str, str]) -> None:
    """Whoever opens the store reads where it is: a mistake must not wait until then."""
    try:
        PayloadSettings.from_environment(environment)
    except StoreError as error:
        raise BadSetting(str(error)) from None


def _number(name: str, text: str, kind: type[T]) -> T:
    try:
        value = kind(text)
    except ValueError:
        raise BadSetting(f"ORCHESTRATOR_{name} must be a number, not {text!r}") from None
    if not (value > 0 and math.isfinite(value)):
        raise BadSetting(f"ORCHESTRATOR_{name} must be above zero, not {text!r}")
    return value
