"""Workflows made by chance from all that the language has, played by chance on every stage.

A quiet case ends alike to the last field, with every driver and in every order; a racing case ends legally.
No execution is ever neither final nor on its way. A seed that fails is in the name of its test; a range of
them is played by LANGUAGE_SEEDS=0-20000.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from random import Random

import pytest

from effort import count
from language.cases import Case, features
from language.memory_play import MemoryPlay, OrderlyPlay
from language.random_specs import quiet_case, racing_case
from language.redis_play import RedisPlay
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from worlds.documents import Json
from worlds.redis_world import RedisWorld

PARTITIONS = 2
ORDERS = 2
SHARE = 0.05
"""In how many of the cases each part of the language must be, and each way to end."""


def seeds(usually: int) -> range:
    given = os.environ.get("LANGUAGE_SEEDS")
    if given is None:
        return range(count(usually // 4, usually))
    first, _, last = given.partition("-")
    return range(int(first), int(last))


@cache
def orderly(seed: int) -> Json:
    """How a quiet case ends when everything happens in order, in one process."""
    return OrderlyPlay(quiet_case(seed), Random(seed)).play()


@pytest.fixture
def world(redis_url: str) -> Iterator[RedisWorld]:
    found = RedisWorld(lambda: connect(redis_url), Keys(partitions=PARTITIONS))
    yield found
    found.close()


# ---- without races


@pytest.mark.parametrize("seed", seeds(150))
def test_in_memory_a_quiet_case_ends_alike_in_every_order(seed: int) -> None:
    for order in range(ORDERS):
        assert MemoryPlay(quiet_case(seed), Random(f"{seed} {order}")).play() == orderly(seed)


@pytest.mark.parametrize("seed", seeds(50))
def test_on_redis_a_quiet_case_ends_as_it_does_in_memory(world: RedisWorld, seed: int) -> None:
    assert RedisPlay(quiet_case(seed), Random(seed), world).play() == orderly(seed)


# ---- with races


@pytest.mark.parametrize("seed", seeds(150))
def test_in_memory_a_racing_case_ends_legally(seed: int) -> None:
    for order in range(ORDERS):
        MemoryPlay(racing_case(seed), Random(f"{seed} {order}")).play()


@pytest.mark.parametrize("seed", seeds(40))
def test_on_redis_a_racing_case_ends_legally(world: RedisWorld, seed: int) -> None:
    RedisPlay(racing_case(seed), Random(seed), world).play()


# ---- whether that is worth anything


@pytest.mark.parametrize("make", [quiet_case, racing_case])
def test_every_part_of_the_language_is_in_many_cases(make: Callable[[int], Case]) -> None:
    found = Counter(feature for seed in range(150) for feature in features(make(seed)))
    known = {*found, *(one for seed in range(1000) for one in features(make(seed)))}

    assert len(known) > 50
    assert {feature: found[feature] for feature in known if found[feature] < SHARE * 150} == {}


def test_quiet_cases_come_to_every_end() -> None:
    """How many of them have an execution, a step or an item that ended so, and what else happens in them."""
    found: Counter[str] = Counter()
    for seed in range(150):
        found.update(happenings(orderly(seed)))

    wanted = {
        *(f"workflow {status}" for status in ("complete", "failed", "halted")),
        *(f"unit {status}" for status in ("complete", "failed", "skipped", "filtered", "halted")),
        *("a child", "a child that failed", "a retry", "a set", "undone", "not undone", "shared"),
    }
    assert {what: found[what] for what in wanted if found[what] < SHARE * 150} == {}


def happenings(ended: Json) -> set[str]:
    found = {"shared"} if any(ended["shared"].values()) else set()
    for execution_id, record in ended["records"].items():
        found.add(f"workflow {record['status']}")
        if ":" in execution_id:
            found |= {"a child", f"a child that {record['status']}"}
        if record["undone"][0] is not None:
            found.add("undone" if record["undone"][0] else "not undone")
        for unit in record["units"].values():
            found.add(f"unit {unit['status']}")
            found |= {"a retry"} if unit["attempt"] > 1 else set()
            found |= {"a set"} if unit.get("round", 0) else set()
    return found
