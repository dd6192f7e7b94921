"""RecordCache: bounded by steps and by bytes; a shared spec counts once."""

from __future__ import annotations

from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import check_spec
from orchestrator.backend.record_cache import RecordCache
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

ONE = check_spec({"name": "one", "steps": [{"id": "a", "fn": "f"}]})


def record(execution_id: str, size: int, loaded: LoadedSpec = ONE) -> WorkflowRecord:
    made = WorkflowRecord(loaded, execution_id, {}, "2026-01-01T00:00:00.000Z")
    made.size = size
    return made


def kept(cache: RecordCache, loaded: LoadedSpec = ONE) -> list[str]:
    return [name for name in "abcdef" if cache.peek(f"{loaded.workflow_id}#{name}") is not None]


def test_the_least_recently_used_records_go_when_there_are_too_many_bytes() -> None:
    cache = RecordCache(max_cached_bytes=1_000 + ONE.size)
    for name in "abcd":
        cache.put(record(name, 400))

    assert kept(cache) == ["c", "d"]
    assert cache.bytes == 800 + ONE.size, "the spec counts once"


def test_records_with_large_specs_of_their_own_are_bounded() -> None:
    cache = RecordCache(max_cached_bytes=20_000)
    specs = [check_spec({"name": f"n{n}", "description": "x" * 9_000, "steps": []}) for n in range(6)]
    for loaded in specs:
        cache.put(record("a", 10, loaded))

    assert [n for n, loaded in enumerate(specs) if kept(cache, loaded)] == [4, 5]


def test_the_newest_record_is_kept_however_large_it_is() -> None:
    cache = RecordCache(max_cached_bytes=100)
    cache.put(record("a", 10))
    cache.put(record("b", 10_000))

    assert kept(cache) == ["b"]


def test_a_record_that_has_grown_counts_with_its_new_size() -> None:
    cache = RecordCache()
    growing = record("a", 10)
    cache.put(growing)
    growing.size = 500
    cache.put(growing)
    assert cache.bytes == 500 + ONE.size

    assert cache.pop(growing.workflow_execution_id) is growing
    assert cache.bytes == 0


def test_an_empty_cache_counts_nothing() -> None:
    cache = RecordCache()
    cache.put(record("a", 10))
    cache.clear()
    cache.put(record("b", 7))

    assert (kept(cache), cache.bytes) == (["b"], 7 + ONE.size)


def test_large_outputs_count_when_they_are_written_and_when_they_are_loaded(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a"), step("b", after="a")), inputs={"x": "y" * 50_000})
    loaded = world.record(weid)
    assert 50_000 < loaded.size < 60_000

    written = one._backend._live.peek(weid)
    assert written is not None
    assert loaded.size <= written.size < 60_000
