"""docs/architecture.md: the functions on its paths exist, and a traced run calls them in this order."""

from __future__ import annotations

import ast
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from architecture.test_layers import RULES
from orchestrator.client import Client
from orchestrator.invocation.executors import Executors
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.job_taker import JobTaker, WorkerQueues
from orchestrator.worker.harness import Harness
from orchestrator.worker.lease import RedisClock
from orchestrator.worker.processes.recycling import RecyclingLimits, RecyclingMonitor
from orchestrator.worker.processes.work_horse import WorkHorse
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "orchestrator"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")


class Station(NamedTuple):
    """One function on a path: its file below orchestrator/, and its name."""

    file: str
    function: str


ENTRY = re.compile(r"^\d+\. \[`([\w/.]+)`\]\(([^)]+)\)((?:,? `\w+`)+)", re.M)


def path_of(heading: str) -> list[Station]:
    """The functions of the numbered list below a heading, in order."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    entries = ENTRY.findall(section)
    assert len(entries) == len(re.findall(r"^\d+\. ", section, re.M)), "an entry names no function"
    return [Station(file, name) for file, _, names in entries for name in CODE.findall(names)]


START, RESULT, JOB = "The path of a start", "The path of a step result", "The path of a job in a worker"


@pytest.mark.parametrize("heading", [START, RESULT, JOB])
def test_every_function_of_a_path_exists(heading: str) -> None:
    stations = path_of(heading)

    assert len(stations) > 10
    assert [one for one in stations if one.function not in functions_in(PACKAGE / one.file)] == []


def test_every_linked_file_of_the_package_is_called_by_its_own_name() -> None:
    named = [(text.strip("`"), link) for text, link in LINK.findall(PAGE) if "/" in link]

    assert [text for text, link in named if not link.endswith(f"/{text}")] == []


def test_a_start_takes_the_path_of_the_page(world: RedisWorld) -> None:
    coordinator, client = world.coordinator(), Client(world.client, world.keys)
    order = document(step("check"), step("ship", after="check"))

    def start() -> None:
        entry_id = client.send_start(order, {}, "x1")
        coordinator.run_once()
        assert client.wait_for_reply(entry_id, 60)["ok"]

    assert missing_from(path_of(START), calls_of(start)) == []
    assert [payload["step"] for payload in world.payloads()] == ["check"]


def test_a_step_result_takes_the_path_of_the_page(world: RedisWorld) -> None:
    coordinator = world.coordinator()
    world.begin(coordinator, document(step("check"), step("ship", after="check")))
    world.work()

    calls = calls_of(coordinator.run_once)

    assert missing_from(path_of(RESULT), calls) == []
    assert [payload["step"] for payload in world.payloads()] == ["ship"]


def test_a_job_takes_the_path_of_the_page(world: RedisWorld, redis_url: str) -> None:
    coordinator = world.coordinator()
    weid = world.begin(coordinator, document(step("check")))
    with connect(redis_url, decodes=False) as bare:
        queues = WorkerQueues("tester", [world.keys.queue("default")], world.keys)
        taker = JobTaker(bare, queues, lambda: world.now_ms() + 30_000)
        executors = Executors(mapping={"check": lambda inputs: {"checked": True}})
        harness = Harness(world.client, executors, RedisClock(world.client), "tester")
        horse = WorkHorse(taker, harness, RecyclingMonitor(RecyclingLimits()), threading.Event())

        calls = calls_of(lambda: horse.serve(burst=True))

    assert missing_from(path_of(JOB), calls) == []
    coordinator.run_once()
    assert world.status(weid) == "complete"


def test_a_function_that_is_called_too_early_is_missing() -> None:
    calls = [Station("a.py", "one"), Station("a.py", "two"), Station("b.py", "one")]

    assert missing_from(calls, calls) == []
    assert missing_from([calls[1], calls[0]], calls) == [calls[0]]
    assert missing_from([calls[0], Station("c.lua", "any"), calls[2]], calls) == []


def calls_of(run: Callable[[], Any]) -> list[Station]:
    """The functions of the package that a call enters in this thread, in order."""
    calls: list[Station] = []
    prefix = f"{PACKAGE}{os.sep}"

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(prefix):
            file = Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix()
            calls.append(Station(file, frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
    return calls


def missing_from(path: list[Station], calls: list[Station]) -> list[Station]:
    """The functions of a path that are not called after those before them. Scripts, which run in Redis, are
    passed over."""
    missing, at = [], 0
    for station in path:
        if station.file.endswith(".lua"):
            continue
        if station in calls[at:]:
            at += calls[at:].index(station) + 1
        else:
            missing.append(station)
    return missing


def functions_in(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".lua":
        return set(re.findall(r"function (\w+)\(", text))
    return {one.name for one in ast.walk(ast.parse(text)) if isinstance(one, ast.FunctionDef)}


# ---- packages


def test_the_list_of_packages_is_complete_and_in_the_order_of_imports() -> None:
    section = PAGE.partition("\n## Packages\n")[2].partition("\n## ")[0]
    order = [link for _, link in LINK.findall(section) if re.fullmatch(r"\.\./orchestrator/\w+", link)]
    place = {link.removeprefix("../").replace("/", "."): number for number, link in enumerate(order)}

    wrong = {
        (package, imported)
        for package, rule in RULES.items()
        for imported in rule.ours
        if place.get(top_of(imported), -1) > place.get(top_of(package), len(place))
    }

    assert wrong == set()
    assert set(place) == {f"orchestrator.{path.parent.name}" for path in PACKAGE.glob("*/__init__.py")}


def top_of(package: str) -> str:
    return ".".join(package.split(".")[:2])


def test_the_only_blocks_of_the_page_are_pictures() -> None:
    assert re.findall(r"^```(.*)$", PAGE, re.M) == ["text", ""]
