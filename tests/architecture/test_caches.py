"""Every cache is bounded by bytes, or small by construction. A new one must be added here, with its bound."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "orchestrator", ROOT / "executors" / "orchestrator_executors")
COUNTED = frozenset({"lru_cache", "cache"})
BY_BYTES = frozenset({"ShortKeyCache", "SizedCache", "SpecCache", "RecordCache"})

SMALL = {
    "orchestrator/application/expressions/jsonpath.py": {"supports_descend": "128 types; the code has few"},
    "orchestrator/application/expressions/safe_regex.py": {
        "compile_pattern": "256 patterns of at most 200 characters and 400 parts, some 50 kB each"
    },
    "orchestrator/application/records/events.py": {"iso": "1,024 numbers", "_iso_second": "64 numbers"},
    "orchestrator/application/records/metric_counts.py": {"_parse_second": "256 times of 19 characters"},
    "orchestrator/application/redaction/by_key.py": {"_cached_rules": "1,024 keys of at most 64 characters"},
    "orchestrator/application/spec/cron.py": {"zone_names": "one value"},
    "orchestrator/application/values/durations.py": {
        "_parse_text": "256 texts of at most 14 characters; others raise, which is not cached"
    },
    "orchestrator/backend/ids.py": {"_stamp": "16 numbers"},
    "orchestrator/drawing/svg.py": {"read_stylesheet": "one stylesheet"},
    "orchestrator/functions/annotations.py": {"_cached_adapter": "1,024 types of the code"},
    "orchestrator/application/values/trace_context.py": {
        "context_of_execution": "1,024 ids of executions",
        "context_of_attempt": "64 ids of attempts",
    },
    "orchestrator/invocation/parameters.py": {"_find_cached": "512 executors, which their worker holds"},
    "orchestrator/payload_stores/__init__.py": {"_s3": "8 addresses of the settings"},
    "orchestrator/redis_rq/keys.py": {"job_id_prefix": "1,024 names of queues"},
    "orchestrator/redis_rq/scripts.py": {"script_text": "the scripts in lua/"},
    "orchestrator/worker/harness.py": {"load_executors": "8 lists of modules of the settings"},
    "orchestrator/web/api/openapi.py": {"make": "one document"},
    "orchestrator/web/rendering.py": {"_environment": "one value"},
    "executors/orchestrator_executors/http_connections.py": {
        "_load_certificates": "4 pairs of variables of the environment"
    },
}
"""The caches that bound the number of their entries only: where, which, and why that is enough."""

SIZED = {
    "orchestrator/application/expressions/dotted_path.py": 1,
    "orchestrator/application/expressions/jsonpath.py": 1,
    "orchestrator/application/spec/cron.py": 1,
    "orchestrator/backend/backend.py": 2,
    "orchestrator/backend/spec_cache.py": 2,
    "orchestrator/backend/sqlite/store.py": 1,
    "orchestrator/coordinator/starts.py": 1,
    "orchestrator/redis_rq/commit_args.py": 1,
    "orchestrator/redis_rq/store.py": 1,
}
"""How many caches that are bounded by bytes each module has."""


@cache
def modules() -> list[tuple[str, ast.Module]]:
    paths = [path for source in SOURCES for path in sorted(source.rglob("*.py"))]
    return [(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())) for path in paths]


def called_name(node: ast.expr) -> str:
    """The last name of a function or class, as it is called, subscripted or used as a decorator."""
    match node:
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return called_name(inner)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def counted_caches(module: ast.Module) -> Iterator[str]:
    """The names of functions that are cached by functools."""
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef(name=name, decorator_list=decorators):
                if any(called_name(one) in COUNTED for one in decorators):
                    yield name
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as value):
                if called_name(value) in COUNTED:
                    yield name
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call() as value):
                if called_name(value) in COUNTED:
                    yield name


def uses(module: ast.Module) -> int:
    """How often a name of functools that caches occurs, imports apart."""
    names = (node for node in ast.walk(module) if isinstance(node, ast.Name | ast.Attribute))
    return sum(called_name(node) in COUNTED for node in names)


def test_every_cache_of_functools_is_listed_with_its_bound() -> None:
    found = {path: set(counted_caches(module)) for path, module in modules()}

    assert {path: names for path, names in found.items() if names} == {
        path: set(bounds) for path, bounds in SMALL.items()
    }


def test_no_cache_of_functools_is_made_in_a_way_that_this_test_does_not_see() -> None:
    # In safe_regex a local variable is called `cache`; it lives as long as one match.
    unseen = {
        path: uses(module) - len(set(counted_caches(module)))
        for path, module in modules()
        if path != "orchestrator/application/expressions/safe_regex.py"
    }

    assert {path: count for path, count in unseen.items() if count} == {}


def test_every_cache_that_is_bounded_by_bytes_is_listed() -> None:
    found = {
        path: sum(
            isinstance(node, ast.Call) and called_name(node.func) in BY_BYTES for node in ast.walk(module)
        )
        for path, module in modules()
    }

    assert {path: count for path, count in found.items() if count} == SIZED
