"""SpecCache: at most so many specs, and the least recently used one goes first."""

from __future__ import annotations

from orchestrator import load_spec
from orchestrator.backend.spec_cache import SpecCache

SPECS = {name: load_spec(f"name: {name}\nsteps: []") for name in "abc"}


def cache_of(*names: str, max_specs: int = 2) -> SpecCache[str]:
    cache = SpecCache[str](max_specs)
    for name in names:
        cache.put(name, SPECS[name])
    return cache


def test_a_spec_is_found_by_its_key() -> None:
    cache = cache_of("a")

    assert cache.get("a") is SPECS["a"]
    assert cache.get("b") is None


def test_the_least_recently_used_spec_is_dropped() -> None:
    cache = cache_of("a", "b")
    cache.get("a")
    cache.put("c", SPECS["c"])

    assert [cache.get(name) for name in "abc"] == [SPECS["a"], None, SPECS["c"]]


def test_a_spec_that_is_put_again_counts_as_used() -> None:
    cache = cache_of("a", "b", "a", "c")

    assert [cache.get(name) for name in "abc"] == [SPECS["a"], None, SPECS["c"]]


def test_the_spec_of_an_older_execution_is_not_that_of_new_ones() -> None:
    cache = SpecCache[str](2)
    loaded = load_spec("steps: [{op: a, input: {x: '{{ input.x }}'}}]")
    cache.put(loaded.workflow_id, loaded)

    older = cache.without_short_references(loaded)
    cache.put(loaded.workflow_id, older)

    assert older.steps["a"].input == {"x": "{{ input.x }}"}
    assert cache.without_short_references(loaded) is older
    assert cache.get(loaded.workflow_id) is loaded
