"""SizedCache, and the caches of specs and documents that use it: bounded by bytes, whatever is put."""

from __future__ import annotations

from orchestrator import load_spec
from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.application.spec.validation import check_spec
from orchestrator.backend.sized_cache import SizedCache
from orchestrator.backend.spec_cache import SpecCache
from orchestrator.redis_rq.commit_args import MAX_CACHED_DOCUMENT_BYTES, CommitArgs
from orchestrator.redis_rq.keys import Keys, OwnStreams


def filled(*sizes: int, max_entries: int = 10, max_bytes: int = 100) -> SizedCache[int, str]:
    cache = SizedCache[int, str](max_entries, max_bytes)
    for key, size in enumerate(sizes):
        cache.put(key, f"value {key}", size)
    return cache


def kept(cache: SizedCache[int, str]) -> list[int]:
    return [key for key in range(10) if cache.get(key) is not None]


def test_the_oldest_values_go_until_the_rest_fits() -> None:
    cache = filled(40, 40, 30, 60)

    assert (kept(cache), cache.bytes) == ([2, 3], 90)


def test_the_number_of_values_is_bounded_too() -> None:
    assert kept(filled(1, 1, 1, max_entries=2)) == [1, 2]


def test_a_value_that_is_larger_than_the_cache_is_kept_alone() -> None:
    cache = filled(10, 500)
    assert (kept(cache), cache.bytes) == ([1], 500)

    cache.put(2, "next", 10)
    assert (kept(cache), cache.bytes) == ([2], 10)


def test_a_value_that_is_put_again_counts_once_and_is_the_newest() -> None:
    cache = filled(40, 40)

    cache.put(0, "again", 50)
    assert (len(cache), cache.bytes, cache.get(0)) == (2, 90, "again")
    cache.put(2, "next", 20)

    assert kept(cache) == [0, 2]


def test_specs_count_with_their_documents_and_keys() -> None:
    cache = SpecCache[tuple[type, str]](100, max_bytes=20_000)
    texts = [f"name: n{n}\nsteps: [{{id: a, fn: f, input: {{x: {'y' * 4_000}}}}}]" for n in range(10)]
    for text in texts:
        cache.put((str, text), load_spec(text))

    found = [n for n, text in enumerate(texts) if cache.get((str, text)) is not None]
    assert found == [8, 9], "each has 4,000 bytes of text and of JSON"


def test_the_documents_of_large_specs_are_bounded() -> None:
    keys = Keys()
    args = CommitArgs(keys, 60, TagRoutes(), OwnStreams(keys))
    for n in range(40):
        steps = [{"id": "a", "fn": "f", "input": {"x": "y" * 1_000_000}}]
        loaded = check_spec({"name": f"n{n}", "steps": steps})
        assert loaded.size > 1_000_000
        args._document(loaded)

    assert len(args._documents) == 16
    assert args._documents.bytes <= MAX_CACHED_DOCUMENT_BYTES
