"""The dependency rule: which package may import which.

A package that is not listed here fails: add it, with what it may import. The rule counts every import, also
those inside functions and under TYPE_CHECKING. An `__init__` may also import from its own subpackages.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "orchestrator", ROOT / "executors" / "orchestrator_executors")
EXECUTORS = "orchestrator_executors"

ERRORS = "orchestrator.application.errors"
VALUES = "orchestrator.application.values"
EXPRESSIONS = "orchestrator.application.expressions"
REDACTION = "orchestrator.application.redaction"
SPEC = "orchestrator.application.spec"
RECORDS = "orchestrator.application.records"
ENGINE = "orchestrator.application.engine"
EXPLAIN = "orchestrator.application.explain"
AUDIT = "orchestrator.application.audit"
APPLICATION = "orchestrator.application"
INVOCATION = "orchestrator.invocation"
BACKEND = "orchestrator.backend"
LOCAL = "orchestrator.local"
COORDINATOR = "orchestrator.coordinator"
REDIS_RQ = "orchestrator.redis_rq"
QUERIES = "orchestrator.redis_rq.queries"
WORKER = "orchestrator.worker"
WORKER_EXECUTORS = "orchestrator.worker.executors"
PAYLOAD_STORES = "orchestrator.payload_stores"
CLIENT = "orchestrator.client"
SETTINGS = "orchestrator.settings"
JSON_LOGIC = "orchestrator.application.expressions.json_logic"

ANYTHING = frozenset({"*"})
DATA = frozenset({"orjson", "pydantic", "pydantic_core"})  # reading and writing JSON
# fmt: off
IMPURE = frozenset({
    "asyncio", "concurrent", "ctypes", "glob", "http", "io", "locale", "logging", "multiprocessing", "os",
    "pathlib", "pickle", "platform", "random", "sched", "secrets", "select", "selectors", "shutil", "signal",
    "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "urllib", "uuid",
})
# fmt: on
CLOCK = re.compile(r"\bdatetime\.now\(|\butcnow\(|\btoday\(")
IMPURE_CALLS = frozenset({"eval", "exec", "input", "open", "print"})
PURE_LIBRARIES = frozenset({"json_logic", "pydantic", "pydantic_core", "yaml"})

DECIDES = frozenset({ENGINE, AUDIT})
"""A worker never decides, and neither do the packages that only read."""


@dataclass(frozen=True)
class Rule:
    """What the modules of one package may import besides themselves and the standard library."""

    ours: frozenset[str] = frozenset()
    libraries: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()


def pure(*ours: str, libraries: frozenset[str] = PURE_LIBRARIES) -> Rule:
    return Rule(ours=frozenset(ours), libraries=libraries, never=IMPURE)


def rule(*ours: str, libraries: frozenset[str] = DATA, never: frozenset[str] = frozenset()) -> Rule:
    return Rule(ours=frozenset(ours), libraries=libraries, never=never)


# From the inside to the outside. The longest name that fits a module is its package.
RULES = {
    EXECUTORS: Rule(libraries=ANYTHING, never=frozenset({"orchestrator", "redis", "rq"})),
    APPLICATION: pure(),
    ERRORS: pure(),
    VALUES: pure(ERRORS),
    EXPRESSIONS: pure(ERRORS, VALUES),
    REDACTION: pure(ERRORS, VALUES, EXPRESSIONS),
    SPEC: pure(ERRORS, VALUES, EXPRESSIONS, REDACTION),
    RECORDS: pure(ERRORS, VALUES, EXPRESSIONS, REDACTION, SPEC),
    ENGINE: pure(ERRORS, VALUES, EXPRESSIONS, REDACTION, SPEC, RECORDS),
    EXPLAIN: pure(ERRORS, VALUES, EXPRESSIONS, REDACTION, SPEC, RECORDS, ENGINE),
    AUDIT: pure(ERRORS, VALUES, EXPRESSIONS, REDACTION, SPEC, RECORDS, ENGINE),
    "orchestrator.builder": Rule(ours=frozenset({APPLICATION}), never=IMPURE | DECIDES),
    "orchestrator.drawing": Rule(ours=frozenset({APPLICATION}), never=IMPURE | DECIDES),
    "orchestrator.convert": Rule(
        ours=frozenset({APPLICATION}),
        libraries=frozenset({"jinja2", "jmespath", "yaml"}),
        never=IMPURE | DECIDES,
    ),
    "orchestrator.deprecation": Rule(),
    "orchestrator.logs": Rule(),
    "orchestrator.processes": Rule(),
    SETTINGS: Rule(),
    INVOCATION: Rule(ours=frozenset({APPLICATION, SETTINGS}), never=DECIDES),
    BACKEND: rule(APPLICATION, INVOCATION, SETTINGS),
    "orchestrator.backend.sqlite": rule(APPLICATION, BACKEND),
    LOCAL: rule(APPLICATION, INVOCATION, BACKEND, SETTINGS, "orchestrator.processes"),
    COORDINATOR: rule(
        APPLICATION,
        BACKEND,
        "orchestrator.logs",
        "orchestrator.processes",
        never=frozenset({EXPLAIN, AUDIT}),
    ),
    REDIS_RQ: rule(APPLICATION, BACKEND, SETTINGS, libraries=DATA | {"hiredis", "redis", "rq"}),
    "orchestrator.redis_rq.lua": Rule(),
    QUERIES: rule(APPLICATION, REDIS_RQ, libraries=DATA | {"redis", "rq"}, never=DECIDES),
    "orchestrator.redis_rq.verify": rule(
        APPLICATION, BACKEND, REDIS_RQ, QUERIES, SETTINGS, libraries=DATA | {"redis", "rq"}
    ),
    PAYLOAD_STORES: rule(
        APPLICATION, REDIS_RQ, SETTINGS, libraries=DATA | {"boto3", "botocore"}, never=DECIDES
    ),
    WORKER_EXECUTORS: rule(APPLICATION, INVOCATION, never=DECIDES),
    WORKER: rule(
        APPLICATION,
        INVOCATION,
        PAYLOAD_STORES,
        REDIS_RQ,
        SETTINGS,
        "orchestrator.logs",
        "orchestrator.processes",
        libraries=DATA | {"redis", "rq"},
        never=DECIDES,
    ),
    "orchestrator.worker.processes": rule(
        APPLICATION,
        REDIS_RQ,
        SETTINGS,
        WORKER,
        "orchestrator.processes",
        libraries=DATA | {"redis", "rq"},
        never=DECIDES,
    ),
    CLIENT: rule(APPLICATION, BACKEND, PAYLOAD_STORES, REDIS_RQ, QUERIES, SETTINGS),
    "orchestrator.diagnosis": rule(  # it reads and writes nothing
        APPLICATION,
        INVOCATION,
        CLIENT,
        REDIS_RQ,
        QUERIES,
        libraries=DATA | {"redis"},
        never=DECIDES,
    ),
    "orchestrator.metrics": rule(  # it reads and writes nothing
        APPLICATION,
        REDIS_RQ,
        QUERIES,
        "orchestrator.diagnosis",
        libraries=frozenset({"prometheus_client", "redis"}),
        never=DECIDES,
    ),
    "orchestrator.traces": rule(APPLICATION, REDIS_RQ, QUERIES, never=DECIDES),
    "orchestrator.testing": rule(APPLICATION, INVOCATION, BACKEND, LOCAL, SETTINGS),
    "orchestrator.testing.plugin": Rule(
        ours=frozenset({"orchestrator.testing"}), libraries=frozenset({"pytest"})
    ),
    "orchestrator.testing.contracts": rule(APPLICATION, BACKEND, libraries=DATA | {"pytest"}),
    # A worker imports it only if its executors are decorated functions.
    "orchestrator.functions": rule(
        APPLICATION,
        INVOCATION,
        BACKEND,
        LOCAL,
        "orchestrator.builder",
        libraries=DATA | {"typing_extensions"},
        never=DECIDES,
    ),
    # These put the packages together, and no package imports them.
    "orchestrator.wiring": Rule(ours=ANYTHING, libraries=ANYTHING),
    "orchestrator.runtime": Rule(ours=ANYTHING, libraries=ANYTHING),
    "orchestrator.embedded": Rule(ours=ANYTHING, libraries=ANYTHING),
    "orchestrator.cli": Rule(ours=ANYTHING, libraries=ANYTHING),
    "orchestrator.web": Rule(ours=ANYTHING, libraries=ANYTHING, never=frozenset({"orchestrator.cli"})),
    "orchestrator.mcp": Rule(
        ours=ANYTHING, libraries=ANYTHING, never=frozenset({"orchestrator.cli", "orchestrator.web"})
    ),
    "orchestrator.__main__": Rule(ours=frozenset({"orchestrator.cli"})),
    # Only exports names.
    "orchestrator": rule(
        APPLICATION, BACKEND, LOCAL, "orchestrator.builder", "orchestrator.functions", libraries=frozenset()
    ),
}


def modules() -> Iterator[tuple[str, Path]]:
    for package in SOURCES:
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())


def inside(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def package_of(module: str) -> str | None:
    """The package of RULES that a module is in: the longest name that fits."""
    if module == "orchestrator":
        return module
    fitting = [name for name in RULES if name != "orchestrator" and inside(module, name)]
    return max(fitting, key=len, default=None)


def imports(source: str, module: str, *, is_package: bool = False) -> set[str]:
    """Every name a text imports, wherever it does: in functions, under TYPE_CHECKING, through importlib."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found.update(name.name for name in names)
            case ast.ImportFrom(module=origin, names=names, level=level):
                start = module.split(".")[: (1 if is_package else 0) - level or None] if level else []
                base = ".".join([*start, *([origin] if origin else [])])
                found.update(f"{base}.{name.name}" for name in names)
            case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]):
                if _called(func) in {"__import__", "find_spec", "import_module"}:
                    found.add(name)
            case _:
                pass
    return found


def faults(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """What in this module breaks the rule."""
    package = package_of(module)
    if package is None:
        return [f"{module} belongs to no package: add it to RULES in {Path(__file__).name}"]
    found = [
        f"{module} must not import {name}"
        for name in sorted(imports(source, module, is_package=is_package))
        if not _is_allowed(name, package) and not (is_package and inside(name, module))
    ]
    if module != JSON_LOGIC and _names_json_logic(source):
        found.append(f"{module} must not name json_logic: only {JSON_LOGIC} does")
    if any(inside(module, one) for one in (APPLICATION, "orchestrator.convert", "orchestrator.drawing")):
        found += [f"{module} must not read the clock: {text}" for text in CLOCK.findall(source)]
        found += [f"{module} must not call {name}()" for name in sorted(_plain_calls(source) & IMPURE_CALLS)]
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_inwards(module: str) -> None:
    path = MODULES[module]

    found = faults(module, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py")

    assert not found, "\n".join(found)


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports inside functions and under TYPE_CHECKING count: they only hide a cycle."""
    edges = {
        module: {_module_of(name) for name in imports(path.read_text(encoding="utf-8"), module)} - {module}
        for module, path in MODULES.items()
        if path.name != "__init__.py"  # an __init__ exports names of the modules below it
    }
    order = TopologicalSorter({module: found & edges.keys() for module, found in edges.items()})

    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("orchestrator_executors.greetings", "import orchestrator.client"),
        ("orchestrator_executors.greetings", "from rq import get_current_job"),
        ("orchestrator.application.records.record", "import time"),
        ("orchestrator.application.records.record", "from os import environ"),
        ("orchestrator.application.records.record", "def f():\n    import uuid"),
        (
            "orchestrator.application.records.record",
            "if TYPE_CHECKING:\n    from orchestrator.backend import Store",
        ),
        ("orchestrator.application.records.record", "from ..backend.ports import Store"),
        ("orchestrator.application.records.record", "from .. import settings"),
        ("orchestrator.application.records.record", "import orjson"),
        ("orchestrator.application.records.record", "import json_logic"),
        ("orchestrator.application.records.record", "find_spec('json_logic')"),
        ("orchestrator.application.records.record", "NAME = 'json_logic'"),
        ("orchestrator.application.expressions.evaluation", "find_spec('json_logic')"),
        ("orchestrator.application.records.record", "importlib.import_module('redis.client')"),
        ("orchestrator.application.records.record", "now = datetime.now(UTC)"),
        ("orchestrator.application.records.record", "now = datetime.utcnow()"),
        ("orchestrator.application.records.record", "day = date.today()"),
        ("orchestrator.application.records.record", "text = open('file').read()"),
        ("orchestrator.builder.workflow", "from orchestrator.local.workflow import Workflow"),
        ("orchestrator.builder.workflow", "from orchestrator.application.engine.transitions import advance"),
        ("orchestrator.builder.op", "import time"),
        ("orchestrator.builder.op", "from orchestrator.functions import step"),
        ("orchestrator.functions.workflows", "from orchestrator.client import Client"),
        ("orchestrator.invocation.executors", "from orchestrator.functions.steps import StepFunction"),
        ("orchestrator.worker.harness", "from orchestrator.functions import step"),
        ("orchestrator.convert.jinja", "import requests"),
        ("orchestrator.convert.jinja", "eval('1')"),
        ("orchestrator.convert.flowtoy", "from orchestrator.backend import memory"),
        ("orchestrator.drawing.layout", "from orchestrator.cli.output.tables import print_table"),
        ("orchestrator.drawing.layout", "import time"),
        ("orchestrator.drawing.svg", "text = open('graph.css').read()"),
        ("orchestrator.backend.memory", "import redis"),
        ("orchestrator.backend.memory", "from orchestrator.redis_rq.keys import Keys"),
        ("orchestrator.redis_rq.store", "from orchestrator.worker import harness"),
        ("orchestrator.redis_rq.store", "import orchestrator.coordinator.loop"),
        ("orchestrator.worker.harness", "from orchestrator.application.engine import advance"),
        ("orchestrator.worker.harness", "from orchestrator.application.engine.transitions import advance"),
        ("orchestrator.invocation.executors", "import orchestrator_executors.greetings"),
        ("orchestrator.coordinator.loop", "from rq import Queue"),
        ("orchestrator.coordinator.loop", "from orchestrator.settings import Settings"),
        ("orchestrator.client", "from orchestrator import Workflow"),
        ("orchestrator.client", "import orchestrator"),
        ("orchestrator.diagnosis.why", "from orchestrator.coordinator.loop import Coordinator"),
        (
            "orchestrator.application.records.record",
            "from orchestrator.application.engine.draft import Draft",
        ),
        (
            "orchestrator.application.values.paths",
            "from orchestrator.application.expressions import evaluate",
        ),
        ("orchestrator.redis_rq.store", "from orchestrator.redis_rq.queries.listing import Page"),
        ("orchestrator.worker.harness", "from orchestrator.worker.processes.pool import Pool"),
        (
            "orchestrator.backend.memory",
            "def f():\n    from orchestrator.backend.sqlite.store import SqliteStore",
        ),
        ("orchestrator.diagnosis.why", "from orchestrator.application.engine.transitions import decide"),
        ("orchestrator.settings", "from orchestrator.backend import ports"),
        ("orchestrator.cli.main", "importlib.import_module('orchestrator_executors.greetings')"),
        ("orchestrator.local.workflow", "from orchestrator.embedded import embedded_redis"),
        ("orchestrator.mcp.calls", "from orchestrator.web.problems import Problem"),
        ("orchestrator.testing.driver", "import pytest"),
        ("orchestrator.testing.driver", "from orchestrator.worker.harness import Harness"),
        ("orchestrator.testing.plugin", "from orchestrator.local.workflow import Workflow"),
        ("orchestrator", "from orchestrator.cli import main"),
    ],
)
def test_the_rule_catches(module: str, source: str) -> None:
    assert faults(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("orchestrator_executors.greetings", "import os, time, requests"),
        ("orchestrator.application.expressions.json_logic", "importlib.util.find_spec('json_logic')"),
        (
            "orchestrator.application.records.record",
            "from datetime import datetime\nfrom .spec import StepSpec",
        ),
        (
            "orchestrator.backend.sqlite.database",
            "import sqlite3\nfrom orchestrator.application.records.record import StepRecord",
        ),
        ("orchestrator.redis_rq.runner", "import redis\nfrom rq.job import Job\nfrom . import keys"),
        ("orchestrator.worker.harness", "from orchestrator.application.records.events import ResultEvent"),
        ("orchestrator.embedded", "import fakeredis\nfrom orchestrator.coordinator.loop import Coordinator"),
        ("orchestrator.cli", "import click\nfrom orchestrator import __version__, embedded"),
        ("orchestrator.__main__", "from orchestrator.cli import main"),
        ("orchestrator.testing.plugin", "import pytest\nfrom orchestrator.testing import WorkflowTest"),
    ],
)
def test_the_rule_permits(module: str, source: str) -> None:
    assert not faults(module, source)


def test_a_relative_import_in_a_package_starts_at_the_package() -> None:
    name = "orchestrator.application"

    assert imports("from .spec import StepSpec", name, is_package=True) == {f"{name}.spec.StepSpec"}
    assert imports("from ..backend import Store", name, is_package=True) == {"orchestrator.backend.Store"}


def test_a_module_without_a_package_is_rejected() -> None:
    assert "belongs to no package" in faults("orchestrator.helpers", "")[0]


def _is_allowed(name: str, package: str) -> bool:
    if inside(name, "orchestrator.deprecation"):
        return True  # it imports nothing of ours: old names are looked up when they are used
    rule, root = RULES[package], name.split(".")[0]
    if any(inside(name, refused) for refused in rule.never):
        return False
    if root == EXECUTORS:
        return package == EXECUTORS  # the harness finds them by name, at run time
    if root != "orchestrator":
        return root in sys.stdlib_module_names or rule.libraries == ANYTHING or root in rule.libraries
    if rule.ours == ANYTHING:
        return True
    target = package_of(name)
    return target == package or target in rule.ours or _is_application(target, rule)


def _is_application(target: str | None, rule: Rule) -> bool:
    """APPLICATION permits its subpackages. Other packages permit only themselves, not their subpackages."""
    return target is not None and APPLICATION in rule.ours and inside(target, APPLICATION)


def _module_of(name: str) -> str:
    """The module that an imported name is in, or the name itself when it is not ours."""
    module = name
    while module and module not in MODULES:
        module = module.rpartition(".")[0]
    return module or name


def _called(func: ast.expr) -> str | None:
    match func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return None


def _plain_calls(source: str) -> set[str]:
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


def _names_json_logic(source: str) -> bool:
    texts = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    named = {text.split(".")[0] for text in texts if isinstance(text, str) and len(text) < 80}
    return "json_logic" in named | {name.split(".")[0] for name in imports(source, "")}
