"""What executors print to a file: each line is written at once and as a whole, and none is lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from processes import PatientClient, stack
from worlds.waiting import wait_until

LINES = 50
SPEC = {
    "steps": [
        {"id": f"s{n}", "fn": "prints_lines", "input": {"name": f"s{n}", "lines": LINES}} for n in range(4)
    ]
}


@pytest.mark.parametrize("unbuffered", [True, False])
@pytest.mark.parametrize("options", [(), ("--concurrency", "4"), ("--processes", "2")])
def test_lines_are_whole_and_none_is_lost(
    options: tuple[str, ...],
    unbuffered: bool,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    client = PatientClient(redis_url)
    with stack(redis_url, "step_functions", tmp_path) as world:
        world.environment |= {"PYTHONUNBUFFERED": "1"} if unbuffered else {}
        world.coordinator()
        world.worker(*options)
        client.result(client.start(SPEC).execution_id, timeout_s=180)

    printed = re.findall(r"line \d+ of s\d$", world.log(), re.MULTILINE)
    assert sorted(printed) == sorted(f"line {n} of s{step}" for step in range(4) for n in range(LINES))
    assert world.log().count("and no line feed") == 4


def test_a_line_is_written_before_its_step_ends(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed loses no line."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    spec = {"steps": [{"id": "a", "fn": "prints_and_waits", "input": {"go": str(tmp_path / "go")}}]}
    with stack(redis_url, "step_functions", tmp_path) as world:
        world.coordinator()
        world.worker()
        PatientClient(redis_url).start(spec)

        wait_until(lambda: "before the end" in world.log())
        (tmp_path / "go").touch()
