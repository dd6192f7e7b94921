"""docs/cells.md: its example runs on two cells, and its rates follow from those of docs/performance.md."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.pages import blocks
from orchestrator.application.errors import RecordNotFound
from processes import stack
from servers.redis_server import own_redis

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "cells.md").read_text(encoding="utf-8")
FIGURES = (DOCS / "performance.md").read_text(encoding="utf-8")
BUSY = 0.7
CORES = (4, 16, 64)
ROW = re.compile(r"^\| (?P<workload>[\w ]+), (?P<worker>[\w ]+) \|(?P<cells> \d.*)\|$", re.M)


def processor_ms(workload: str, worker: str) -> tuple[float, float, float]:
    """The processor time of a step in coordinator, Redis and worker, in the table of figures."""
    [line] = re.findall(rf"^\| {workload} +\| {worker} +\|.*redis.*$", FIGURES, re.M)
    times = dict(re.findall(r"(client|coordinator|redis|workers) ([\d.]+)", line))
    return float(times["coordinator"]), float(times["redis"]), float(times["workers"])


@pytest.mark.parametrize(
    "row", list(ROW.finditer(PAGE)), ids=lambda row: f"{row['workload']}, {row['worker']}"
)
def test_the_rates_follow_from_the_figures(row: re.Match[str]) -> None:
    numbers = [float(cell.strip().removesuffix("/s").replace(",", "")) for cell in row["cells"].split("|")]

    times = processor_ms(row["workload"], row["worker"])

    of_redis = BUSY * 1000 / times[1]
    rates = [min(of_redis, cores * BUSY * 1000 / sum(times)) for cores in CORES]
    assert numbers[:3] == list(times)
    assert numbers[3:] == [round(rate) for rate in (of_redis, *rates)]


def test_there_are_rows_to_check() -> None:
    assert len(list(ROW.finditer(PAGE))) == 3


@pytest.mark.slow
def test_the_example_starts_each_order_in_one_of_two_cells(tmp_path: Path) -> None:
    [block] = blocks(PAGE)
    with ExitStack() as contexts:
        source = block.text
        for name in "ab":
            url = contexts.enter_context(own_redis(tmp_path)).url
            processes = contexts.enter_context(stack(url, "step_functions", tmp_path / name))
            processes.coordinator()
            processes.worker()
            address = f"redis://redis-{name}:6379/0"
            assert address in source
            source = source.replace(address, url)
        scope: dict[str, Any] = {}

        exec(compile(source, "docs/cells.md", "exec"), scope)

        for client in scope["CELLS"]:
            contexts.callback(client._redis.close)
        known = [[_knows(client, f"order-{number}") for client in scope["CELLS"]] for number in range(8)]
    assert [sum(cells) for cells in known] == [1] * 8
    assert {cells.index(True) for cells in known} == {0, 1}


def _knows(client: Any, execution_id: str) -> bool:
    try:
        client.record(execution_id)
    except RecordNotFound:
        return False
    return True
