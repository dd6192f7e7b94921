"""The results of all rounds: their medians, and their file format."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scripts.benchmarks.measuring import Run

Group = tuple[str, int, str, bool]
"""Workload, size, system, and whether with an append-only file."""
Figure = Callable[[Run], float]


@dataclass
class Results:
    """`peers` are rows of the side-by-side benchmark; `failures` are failed measurements with reasons."""

    machine: dict[str, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    peers: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def groups(self) -> dict[Group, list[Run]]:
        found: dict[Group, list[Run]] = {}
        for run in self.runs:
            found.setdefault((run.workload, run.size, run.system, run.aof), []).append(run)
        return found

    def figure(
        self, workload: str, system: str, of: Figure, *, aof: bool = False, smallest: bool = False
    ) -> float | None:
        """Return the median of a workload at its largest or smallest size, or None if it was not measured."""
        sizes = {one.size for one in self._select(workload, system, aof)}
        if not sizes:
            return None
        size = min(sizes) if smallest else max(sizes)
        return statistics.median(of(one) for one in self._select(workload, system, aof) if one.size == size)

    def _select(self, workload: str, system: str, aof: bool) -> Iterator[Run]:
        return (one for one in self.runs if (one.workload, one.system, one.aof) == (workload, system, aof))

    def peer(self, system: str, workload: str) -> float | None:
        """Return the steps per second of a peer: the median of the runs with the right result."""
        found = [
            row["steps"] / row["wall"]
            for row in self.peers
            if (row["config"], row["workload"]) == (system, workload) and row.get("ok")
        ]
        return statistics.median(found) if found else None

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, path: Path) -> Results:
        kept = json.loads(path.read_text())
        return cls(**{**kept, "runs": [Run(**run) for run in kept["runs"]]})


def ratio(value: float | None, to: float | None) -> float | None:
    return value / to if value is not None and to else None
