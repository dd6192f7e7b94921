"""What the deltas of a history tell: the record after any commit, inputs and results of every attempt.

A history without deltas has the moves alone. A history may have deltas from some commit on, or with gaps:
folding starts again at each snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.application.errors import HistoryNotKept
from orchestrator.application.records.delta import DELTA, fold
from orchestrator.application.values.unit_id import UnitId

Entry = Mapping[str, Any]

HOW_TO_KEEP = "ORCHESTRATOR_HISTORY=full, or history: full in the document, keeps them"
_ENDED = ("complete", "failed", "skipped", "halted")


def is_delta(entry: Entry) -> bool:
    return entry.get("what") == DELTA


def commit_number(version: str) -> int:
    """The number of a commit: the counter of the version that it led to."""
    return int(version.partition("-")[0])


def fields_at(entries: Iterable[Entry], number: int) -> dict[str, Any]:
    """The visible fields of a record after a commit; HistoryNotKept if the history does not have them."""
    deltas = [entry for entry in entries if is_delta(entry)]
    if not deltas:
        raise HistoryNotKept(f"the history has no values; {HOW_TO_KEEP}")
    kept = [delta for delta in deltas if "omitted" not in delta]
    before = [delta for delta in kept if commit_number(delta["version"]) <= number]
    if before and commit_number(before[-1]["version"]) == number:
        return fold(before)
    if len(kept) < len(deltas) and number >= commit_number(deltas[-1]["version"]):
        raise HistoryNotKept(
            f"commit {number} has no values: the history of this execution reached its size limit"
            f" with commit {commit_number(deltas[-1]['version'])}"
        )
    numbers = [commit_number(delta["version"]) for delta in kept]
    raise HistoryNotKept(f"commit {number} has no values; commits with values: {_describe_ranges(numbers)}")


def _describe_ranges(numbers: Sequence[int]) -> str:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ", ".join(" to ".join(map(str, one)) for one in ranges) or "none"


# ---- attempts


@dataclass(slots=True)
class Attempt:
    """One dispatch of a unit: its inputs, and its output and error once its result has arrived. A dispatch
    that was revoked or lost has no `ended_at`."""

    step: str
    run_id: int
    attempt: int
    dispatched_at: str
    inputs: Any
    ended_at: str | None = None
    output: Any = None
    error: Any = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def list_attempts(entries: Iterable[Entry], unit: str | None = None) -> list[Attempt] | None:
    """Every attempt in the history, or those of one unit, in the order of their dispatch; None if the history
    has no values."""
    found: dict[tuple[str, int], Attempt] = {}
    has_values = False
    for entry in entries:
        if not is_delta(entry):
            continue
        has_values = True
        for result in _list_results(entry):
            one = found.get((result["step"], result["run_id"]))
            if one is not None and one.ended_at is None:
                one.ended_at, one.output, one.error = entry["at"], result.get("output"), result.get("error")
        for job in entry.get("jobs", ()):
            key = (job["step"], job["run_id"])
            found[key] = Attempt(*key, job["attempt"], entry["at"], job["inputs"])
    if not has_values:
        return None
    return [one for one in found.values() if unit in (None, one.step)]


def _list_results(delta: Entry) -> Iterator[Entry]:
    """The results that a commit recorded: those that it names, and those of units without a dispatch."""
    yield from delta.get("results", ())
    for name, unit in _list_units(delta):
        if "token" not in unit and unit["status"] in _ENDED:
            yield {**unit, "step": name}


def _list_units(delta: Entry) -> Iterator[tuple[str, Entry]]:
    for name, value in delta.get("set", {}).items():
        kind, _, rest = name.partition(":")
        if kind == "step":
            yield rest, value
        elif kind == "item":
            step_id, _, part = rest.rpartition(":")
            yield UnitId.for_item(step_id, part), value


# ---- moves


def add_values(entries: Iterable[Entry]) -> Iterator[dict[str, Any]]:
    """The moves of a history. A move of a commit with a delta has the number of the commit, a dispatch has
    its inputs, and the end of an attempt has its output. The entries of one commit must come together."""
    moves: list[dict[str, Any]] = []
    for entry in entries:
        if not is_delta(entry):
            moves.append(dict(entry))
            continue
        yield from _add_values_of(entry, moves)
        moves = []
    yield from moves


def _add_values_of(delta: Entry, moves: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    inputs = {(job["step"], job["run_id"]): job["inputs"] for job in delta.get("jobs", ())}
    results = {(one["step"], one["run_id"]): one.get("output") for one in _list_results(delta)}
    for move in moves:
        if move.get("at") == delta["at"]:  # others belong to commits without a delta
            move["commit"] = commit_number(delta["version"])
            key = (move.get("step"), move.get("run_id"))
            if move.get("to") == "in_progress" and key in inputs:
                move["inputs"] = inputs[key]
            elif move.get("to") in _ENDED and results.get(key) is not None:
                move["output"] = results[key]
        yield move
