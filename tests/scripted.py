"""The executor of the random workflows for real workers: it knows a step's script by the seed in its name."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

from redis import Redis

from differential.specs import Case, random_case


def execute(fn: str, inputs: dict[str, Any]) -> Any:
    """`case<seed>.<op>`: how often the step was called before is counted in Redis."""
    case, _, op = fn.partition(".")
    with Redis.from_url(os.environ["ORCHESTRATOR_REDIS_URL"]) as redis:
        calls = int(redis.incr(f"test:calls:{fn}")) - 1
    return _case(int(case.removeprefix("case"))).execute(op, inputs, calls)


@lru_cache(maxsize=256)
def _case(seed: int) -> Case:
    return random_case(seed)
