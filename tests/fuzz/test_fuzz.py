"""Runs a few examples of each target, always the same ones. scripts/fuzz runs more."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from fuzz.targets import TARGETS, world_on

SETTINGS: dict[str, Any] = {
    "derandomize": True,
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if not target.has_redis])
def test_untrusted_input_is_handled_or_rejected(name: str) -> None:
    target = TARGETS[name]

    @settings(max_examples=target.examples, **SETTINGS)
    @given(target.strategy)
    def check(value: Any) -> None:
        target.check(value)

    check()


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.has_redis])
def test_untrusted_input_is_handled_or_rejected_on_a_real_redis(name: str, redis_url: str) -> None:
    target = TARGETS[name]

    @settings(max_examples=target.examples, **SETTINGS)
    @given(target.strategy)
    def check(value: Any) -> None:
        target.check(value, partial(world_on, redis_url))

    check()
