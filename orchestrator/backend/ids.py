"""Ids: of executions, steps and dispatches; and the versions of records."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime
from functools import lru_cache
from zlib import crc32

from orchestrator.application.errors import InvalidEvent

_EXECUTION_ID = re.compile(r"[A-Za-z0-9_.:-]{1,256}")


def now_ms() -> int:
    return int(time.time() * 1000)


def random_nonce() -> str:
    """Return 16 random hex digits."""
    return os.urandom(8).hex()


def new_execution_id(at_ms: int, nonce: str) -> str:
    """The creation time in seconds and four hex digits of the nonce: readable, but not guaranteed unique."""
    return f"{_stamp(at_ms // 1000)}-{crc32(nonce.encode()) & 0xFFFF:04x}"


@lru_cache(maxsize=16)
def _stamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y%m%dT%H%M%S")


def check_execution_id(execution_id: str) -> str:
    if not _EXECUTION_ID.fullmatch(execution_id):
        raise InvalidEvent("execution_id: 1 to 256 letters, digits, '_', '-', '.' or ':'")
    return execution_id


def step_key(workflow_execution_id: str, step_id: str) -> str:
    return f"{workflow_execution_id}#{step_id}"


def step_run_key(workflow_execution_id: str, step_id: str, run_id: int | None) -> str:
    """The key of one dispatch of a step. Without a run_id, the key of a result that names no dispatch."""
    return f"{workflow_execution_id}#{step_id}#{'' if run_id is None else run_id}"


def next_version(version: str, nonce: str) -> str:
    """`<counter>-<nonce>`. A bare counter could repeat after a failover, a lost tail of the AOF or a restored
    backup."""
    return f"{int(version.partition('-')[0] or 0) + 1}-{nonce}"
