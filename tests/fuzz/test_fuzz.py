"""Each target a little, always with the same examples; scripts/fuzz goes on for as long as it is told."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from fuzz.targets import TARGETS, real_world

SETTINGS: dict[str, Any] = {
    "derandomize": True,
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_strangers_send_is_answered_or_refused(name: str) -> None:
    target = TARGETS[name]

    @settings(max_examples=target.examples, **SETTINGS)
    @given(target.strategy)
    def check(value: Any) -> None:
        target.check(value)

    check()


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.has_redis])
def test_the_same_on_a_real_redis(name: str, redis_url: str) -> None:
    target = TARGETS[name]

    @settings(max_examples=target.examples // 2, **SETTINGS)
    @given(target.strategy)
    def check(value: Any) -> None:
        target.check(value, partial(real_world, redis_url))

    check()
