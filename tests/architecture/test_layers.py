"""The dependency rule: who may import whom. A module that belongs to no room fails too: give it one here."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("orchestrator", "executors")

APPLICATION = "orchestrator.application"
TRANSITIONS = "orchestrator.application.transitions"
CONVERT = "orchestrator.convert"
BACKEND = "orchestrator.backend"
REDIS_RQ = "orchestrator.redis_rq"
PAYLOADS = "orchestrator.payloads"
AWAITING = "orchestrator.awaiting"
RAISED = "orchestrator.raised"
SECRETS = "orchestrator.secrets"
LOGIC = "orchestrator.application.logic"

ANYTHING = frozenset({"*"})
DATA = frozenset({"orjson", "pydantic", "pydantic_core"})  # reading and writing JSON is nobody's secret
# fmt: off
IMPURE = frozenset({
    "asyncio", "concurrent", "ctypes", "glob", "http", "io", "locale", "logging", "multiprocessing", "os",
    "pathlib", "pickle", "platform", "random", "sched", "secrets", "select", "selectors", "shutil", "signal",
    "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "urllib", "uuid",
})
# fmt: on
CLOCK = re.compile(r"\bdatetime\.now\(|\butcnow\(|\btoday\(")
IMPURE_CALLS = frozenset({"eval", "exec", "input", "open", "print"})


@dataclass(frozen=True)
class Room:
    """What the modules of one room may import besides themselves and the standard library."""

    ours: frozenset[str] = frozenset()
    libraries: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()


ROOMS = {
    "executors": Room(libraries=ANYTHING, never=frozenset({"orchestrator", "redis", "rq"})),
    APPLICATION: Room(libraries=frozenset({"json_logic", "pydantic", "pydantic_core", "yaml"}), never=IMPURE),
    "orchestrator.builder": Room(
        ours=frozenset({APPLICATION}), never=IMPURE | {TRANSITIONS}
    ),  # it writes documents, nothing more
    CONVERT: Room(ours=frozenset({APPLICATION}), libraries=frozenset({"yaml"}), never=IMPURE | {TRANSITIONS}),
    AWAITING: Room(),
    RAISED: Room(ours=frozenset({APPLICATION}), never=frozenset({TRANSITIONS})),
    SECRETS: Room(ours=frozenset({APPLICATION}), never=frozenset({TRANSITIONS})),
    BACKEND: Room(ours=frozenset({APPLICATION, AWAITING, RAISED, SECRETS}), libraries=DATA),
    REDIS_RQ: Room(ours=frozenset({APPLICATION, BACKEND}), libraries=DATA | {"hiredis", "redis", "rq"}),
    PAYLOADS: Room(ours=frozenset({APPLICATION, REDIS_RQ}), libraries=frozenset({"boto3", "botocore"})),
    "orchestrator.logs": Room(),
    "orchestrator.worker": Room(
        ours=frozenset({APPLICATION, AWAITING, PAYLOADS, RAISED, REDIS_RQ, SECRETS, "orchestrator.logs"}),
        libraries=DATA | {"redis", "rq"},
        never=frozenset({TRANSITIONS}),  # a worker never decides
    ),
    "orchestrator.chores": Room(),
    "orchestrator.refusals": Room(
        ours=frozenset({APPLICATION, BACKEND, "orchestrator.cases"}), libraries=DATA
    ),
    "orchestrator.cases": Room(ours=frozenset({APPLICATION, BACKEND}), libraries=DATA),
    "orchestrator.starts": Room(ours=frozenset({APPLICATION, BACKEND}), libraries=DATA),
    "orchestrator.schedules": Room(ours=frozenset({APPLICATION, BACKEND}), libraries=DATA),
    "orchestrator.coordinator": Room(
        ours=frozenset(
            {
                APPLICATION,
                BACKEND,
                "orchestrator.cases",
                "orchestrator.chores",
                "orchestrator.refusals",
                "orchestrator.schedules",
                "orchestrator.starts",
            }
        ),
        libraries=DATA,
    ),
    "orchestrator.client": Room(ours=frozenset({APPLICATION, BACKEND, PAYLOADS, REDIS_RQ}), libraries=DATA),
    "orchestrator.diagnosis": Room(  # it looks and tells, and writes nothing
        ours=frozenset({APPLICATION, REDIS_RQ, "orchestrator.worker.lookup"}),
        libraries=DATA | {"redis"},
        never=frozenset({TRANSITIONS}),
    ),
    "orchestrator.family": Room(ours=frozenset({APPLICATION, BACKEND}), libraries=DATA),
    "orchestrator.workflow": Room(
        ours=frozenset({APPLICATION, BACKEND, "orchestrator.family"}), libraries=DATA
    ),
    "orchestrator.whatif": Room(ours=frozenset({APPLICATION})),
    "orchestrator.testing.plugin": Room(
        ours=frozenset({"orchestrator.testing"}), libraries=frozenset({"pytest"})
    ),
    "orchestrator.testing": Room(
        ours=frozenset(
            {
                APPLICATION,
                AWAITING,
                BACKEND,
                SECRETS,
                "orchestrator.family",
                "orchestrator.worker.lookup",
                "orchestrator.workflow",
            }
        ),
        libraries=DATA,
    ),
    "orchestrator.settings": Room(
        ours=frozenset({APPLICATION, PAYLOADS, REDIS_RQ, "orchestrator.worker"}), libraries=DATA
    ),
    "orchestrator.standing": Room(),
    # They wire the rooms together, and no room imports them.
    "orchestrator.embedded": Room(ours=ANYTHING, libraries=ANYTHING),
    "orchestrator.cli": Room(ours=ANYTHING, libraries=ANYTHING),
    "orchestrator.__main__": Room(ours=frozenset({"orchestrator.cli"})),
    # The front door: only passes names on.
    "orchestrator": Room(
        ours=frozenset(
            {
                APPLICATION,
                BACKEND,
                REDIS_RQ,
                "orchestrator.builder",
                "orchestrator.client",
                "orchestrator.coordinator",
                "orchestrator.settings",
                "orchestrator.worker",
                "orchestrator.workflow",
            }
        )
    ),
}


def modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())


def inside(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def room_of(module: str) -> str | None:
    """The innermost room of a module; the front door is a room of one file, not of everything below it."""
    if module == "orchestrator":
        return module
    return next((name for name in ROOMS if name != "orchestrator" and inside(module, name)), None)


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
    """What the rule has against this text as that module, in words."""
    room_name = room_of(module)
    if room_name is None:
        return [f"{module} belongs to no room: say in {Path(__file__).name} what it may import"]
    room = ROOMS[room_name]
    found = [
        f"{module} must not import {name}"
        for name in sorted(imports(source, module, is_package=is_package))
        if not _is_allowed(name, room_name, room)
    ]
    if module != LOGIC and _names_json_logic(source):
        found.append(f"{module} must not name json_logic: {LOGIC} alone does")
    if room_name in (APPLICATION, CONVERT):
        found += [f"{module} must not read the clock: {text}" for text in CLOCK.findall(source)]
        found += [f"{module} must not call {name}()" for name in sorted(_plain_calls(source) & IMPURE_CALLS)]
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_inwards(module: str) -> None:
    path = MODULES[module]

    found = faults(module, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py")

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("executors.greetings", "import orchestrator.client"),
        ("executors.greetings", "from rq import get_current_job"),
        ("orchestrator.application.record", "import time"),
        ("orchestrator.application.record", "from os import environ"),
        ("orchestrator.application.record", "def f():\n    import uuid"),
        ("orchestrator.application.record", "if TYPE_CHECKING:\n    from orchestrator.backend import Store"),
        ("orchestrator.application.record", "from ..backend.ports import Store"),
        ("orchestrator.application.record", "from .. import settings"),
        ("orchestrator.application.record", "import orjson"),
        ("orchestrator.application.record", "import json_logic"),
        ("orchestrator.application.record", "find_spec('json_logic')"),
        ("orchestrator.application.record", "NAME = 'json_logic'"),
        ("orchestrator.application.expressions", "find_spec('json_logic')"),
        ("orchestrator.application.record", "importlib.import_module('redis.client')"),
        ("orchestrator.application.record", "now = datetime.now(UTC)"),
        ("orchestrator.application.record", "now = datetime.utcnow()"),
        ("orchestrator.application.record", "day = date.today()"),
        ("orchestrator.application.record", "text = open('file').read()"),
        ("orchestrator.builder.workflow", "from orchestrator.workflow import Workflow"),
        ("orchestrator.builder.workflow", "from orchestrator.application.transitions import advance"),
        ("orchestrator.builder.op", "import time"),
        ("orchestrator.convert.jinja", "import jinja2"),
        ("orchestrator.convert.jinja", "eval('1')"),
        ("orchestrator.convert.flowtoy", "from orchestrator.backend import memory"),
        ("orchestrator.backend.memory", "import redis"),
        ("orchestrator.backend.memory", "from orchestrator.redis_rq.keys import Keys"),
        ("orchestrator.redis_rq.store", "from orchestrator.worker import harness"),
        ("orchestrator.redis_rq.store", "import orchestrator.coordinator"),
        ("orchestrator.worker.harness", "from orchestrator.application import transitions"),
        ("orchestrator.worker.harness", "from orchestrator.application.transitions import advance"),
        ("orchestrator.worker.lookup", "import executors.greetings"),
        ("orchestrator.coordinator", "from rq import Queue"),
        ("orchestrator.coordinator", "from orchestrator.settings import Settings"),
        ("orchestrator.client", "from orchestrator import Workflow"),
        ("orchestrator.client", "import orchestrator"),
        ("orchestrator.diagnosis.why", "from orchestrator.client import Client"),
        ("orchestrator.diagnosis.why", "from orchestrator.application.transitions import decide"),
        ("orchestrator.settings", "from orchestrator.backend import ports"),
        ("orchestrator.cli.main", "importlib.import_module('executors.greetings')"),
        ("orchestrator.workflow", "from orchestrator.embedded import embedded_redis"),
        ("orchestrator.testing.stage", "import pytest"),
        ("orchestrator.testing.stage", "from orchestrator.worker.harness import Harness"),
        ("orchestrator.testing.plugin", "from orchestrator.workflow import Workflow"),
        ("orchestrator", "from orchestrator.cli import main"),
    ],
)
def test_the_rule_catches(module: str, source: str) -> None:
    assert faults(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("executors.greetings", "import os, time, requests"),
        ("orchestrator.application.logic", "importlib.util.find_spec('json_logic')"),
        ("orchestrator.application.record", "from datetime import datetime\nfrom .spec import StepSpec"),
        (
            "orchestrator.backend.sqlite",
            "import sqlite3\nfrom orchestrator.application.record import StepRecord",
        ),
        ("orchestrator.redis_rq.runner", "import redis\nfrom rq.job import Job\nfrom . import keys"),
        ("orchestrator.worker.harness", "from orchestrator.application.events import ResultEvent"),
        ("orchestrator.embedded", "import fakeredis\nfrom orchestrator.coordinator import Coordinator"),
        ("orchestrator.cli", "import click\nfrom orchestrator import __version__, embedded"),
        ("orchestrator.__main__", "from orchestrator.cli import main"),
        ("orchestrator.testing.plugin", "import pytest\nfrom orchestrator.testing import Rehearsal"),
    ],
)
def test_the_rule_permits(module: str, source: str) -> None:
    assert not faults(module, source)


def test_a_relative_import_in_a_package_starts_at_the_package() -> None:
    name = "orchestrator.application"

    assert imports("from .spec import StepSpec", name, is_package=True) == {f"{name}.spec.StepSpec"}
    assert imports("from ..backend import Store", name, is_package=True) == {"orchestrator.backend.Store"}


def test_a_module_without_a_room_is_refused() -> None:
    assert "belongs to no room" in faults("orchestrator.helpers", "")[0]


def _is_allowed(name: str, room_name: str, room: Room) -> bool:
    root = name.split(".")[0]
    if any(inside(name, refused) for refused in room.never):
        return False
    if room_name != "orchestrator" and inside(name, room_name):
        return True
    if root == "executors":
        return False  # the harness finds them by name, at run time
    if root == "orchestrator":
        return room.ours == ANYTHING or any(inside(name, friend) for friend in room.ours)
    return root in sys.stdlib_module_names or room.libraries == ANYTHING or root in room.libraries


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
