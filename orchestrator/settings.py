"""Every setting of every process, read from the environment once and handed down.

A command reads the settings when it starts; its options override them. Under a stock `rq worker` the harness
reads them. Each setting has a variable, ORCHESTRATOR_<NAME>. This module imports nothing of the project, so
that every package may use it; `wiring.py` turns settings into keys, routes, stores and processes.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

REDIS_URL = "redis://localhost:6379/0"
PREFIX = "orchestrator"
PARTITIONS = 8
THREADS = 4
"""How many steps Workflow.run() runs at once, in threads of its process."""
LEASE_S = 30.0
STOP_GRACE_S = 20.0
"""How long a stopping worker waits for Redis to take a result. compose.yaml kills it after 330 s."""
GRACE_MS = 10_000
"""How long a dispatched job may be missing from its queue before it counts as lost."""
RETENTION_S = 7 * 86_400
"""How long a finished execution is kept."""
RETENTION_MARGIN_S = 86_400
"""Payloads and specs are kept this much longer than the executions that refer to them."""
MAX_BACKLOG = 100_000
"""How many starts may wait for a coordinator. Each takes about a hundred bytes, and its inputs."""
MAX_QUEUED = 500_000
"""How many jobs may wait in a queue before starts that need it are held."""
HISTORY = "moves"
"""What the history of an execution has: its moves, or also what each commit changed."""
HISTORY_MODES = ("moves", "full")
KEEP_PRINTS = "on"
"""Whether the step log has what executors print."""
SWITCH = ("on", "off")
MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
"""The size limit of one value that is stored by reference."""

_MEMORY_UNITS = {"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


class BadSetting(ValueError):
    """An environment variable has a value that cannot be used. The message names it."""


OnBadSetting = Callable[[BadSetting], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one process. Text that only one package understands stays text: `tags`, `payloads`."""

    redis_url: str = REDIS_URL
    prefix: str = PREFIX
    executors: tuple[str, ...] = ()
    partitions: int = PARTITIONS
    lease_s: float = LEASE_S
    stop_grace_s: float = STOP_GRACE_S
    grace_ms: int = GRACE_MS
    retention_s: int = RETENTION_S
    tags: str = ""
    max_backlog: int = MAX_BACKLOG
    max_queued: int = MAX_QUEUED
    payloads: str = "redis"
    payload_ttl_s: int = RETENTION_S + RETENTION_MARGIN_S
    payload_max_bytes: int = MAX_PAYLOAD_BYTES
    s3_endpoint: str | None = None
    max_memory: int | None = None
    non_retryable: tuple[str, ...] = ()
    history: str = HISTORY
    keep_prints: str = KEEP_PRINTS
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False, compare=False)
    """Where secrets and the variables of sources are read: their names are not known in advance."""

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] | None = None, on_bad: OnBadSetting | None = None
    ) -> Settings:
        """Read every setting. A value that cannot be used raises BadSetting, or is passed to `on_bad` and
        replaced by its default."""
        read = _Reader(os.environ if environment is None else environment, on_bad)
        retention_s = read.number("RETENTION_S", RETENTION_S, int)
        return cls(
            redis_url=read.text("REDIS_URL", REDIS_URL),
            prefix=read.text("PREFIX", PREFIX),
            executors=read.names("EXECUTORS"),
            partitions=read.number("PARTITIONS", PARTITIONS, int),
            lease_s=read.number("LEASE_S", LEASE_S, float),
            stop_grace_s=read.number("STOP_GRACE_S", STOP_GRACE_S, float),
            grace_ms=read.number("GRACE_MS", GRACE_MS, int),
            retention_s=retention_s,
            tags=read.text("TAGS", ""),
            max_backlog=read.number("MAX_BACKLOG", MAX_BACKLOG, int),
            max_queued=read.number("MAX_QUEUED", MAX_QUEUED, int),
            payloads=read.text("PAYLOADS", "").strip() or "redis",
            payload_ttl_s=read.optional_number("PAYLOAD_TTL_S", retention_s + RETENTION_MARGIN_S),
            payload_max_bytes=read.optional_number("PAYLOAD_MAX_BYTES", MAX_PAYLOAD_BYTES),
            s3_endpoint=read.text("S3_ENDPOINT", "") or None,
            max_memory=read.memory("MAX_MEMORY"),
            non_retryable=read.names("NON_RETRYABLE"),
            history=read.choice("HISTORY", HISTORY_MODES, HISTORY),
            keep_prints=read.choice("KEEP_PRINTS", SWITCH, KEEP_PRINTS),
            environment=read.environment,
        )


def check_history_mode(mode: str) -> str:
    """The mode itself; ValueError if there is no such mode."""
    if mode not in HISTORY_MODES:
        raise ValueError(f"history must be {' or '.join(HISTORY_MODES)}, not {mode!r}")
    return mode


class _Reader:
    """Reads variables of one environment."""

    def __init__(self, environment: Mapping[str, str], on_bad: OnBadSetting | None) -> None:
        self.environment, self._on_bad = environment, on_bad

    def text(self, name: str, default: str) -> str:
        return self.environment.get(f"ORCHESTRATOR_{name}", default)

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.text(name, "").split(",") if part.strip())

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """One of these words; an empty variable counts as not set."""
        text = self.text(name, "").strip() or default
        if text in choices:
            return text
        return self._reject(
            f"ORCHESTRATOR_{name} must be {' or '.join(choices)}, not {text[:100]!r}", default
        )

    def number(self, name: str, default: T, kind: Callable[[str], T]) -> T:
        text = self.environment.get(f"ORCHESTRATOR_{name}")
        if text is None:
            return default
        try:
            value = kind(text)
        except ValueError:
            return self._reject(f"ORCHESTRATOR_{name} must be a number, not {text[:100]!r}", default)
        if not (value > 0 and math.isfinite(value)):  # type: ignore[operator, arg-type]
            return self._reject(f"ORCHESTRATOR_{name} must be above zero, not {text[:100]!r}", default)
        return value

    def optional_number(self, name: str, default: int) -> int:
        """A whole number above zero; an empty variable counts as not set."""
        text = self.text(name, "").strip()
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) > 0):
            problem = f"ORCHESTRATOR_{name} must be a whole number above zero, not {text[:100]!r}"
            return self._reject(problem, default)
        return int(text)

    def memory(self, name: str) -> int | None:
        """An amount of memory in bytes; None for no limit."""
        text = self.text(name, "").strip()
        if not text:
            return None
        found = re.fullmatch(r"(\d+)\s*([KMG]B)?", text, re.IGNORECASE | re.ASCII)
        if found is None or not int(found[1]):
            problem = f"ORCHESTRATOR_{name} is {text[:100]!r}: write 512MB, 2GB or a number of bytes"
            return self._reject(problem, None)
        return int(found[1]) * _MEMORY_UNITS[(found[2] or "").upper()]

    def _reject(self, problem: str, default: T) -> T:
        error = BadSetting(problem)
        if self._on_bad is None:
            raise error
        self._on_bad(error)
        return default
