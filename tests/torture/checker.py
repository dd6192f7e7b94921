"""The invariants of a torture run: a pure function of what was sent and what was found.

Each function yields a sentence for each broken invariant. A correct system gives none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torture.facts import Execution, Facts
from torture.fleet import Exit
from torture.kinds import End
from torture.producers import Outages, Sent
from torture.timetable import Timetable

Json = dict[str, Any]
FINAL_STATUSES = ("complete", "failed", "skipped", "filtered", "cancelled", "halted")
MAX_GROWTH, SPARE_BYTES = 1.1, 1_500_000


@dataclass
class Evidence:
    """The input of all checks."""

    sent: Sequence[Sent]
    outages: Outages
    facts: Facts
    poison: Mapping[str, float | None] = field(default_factory=dict)
    """When Redis acknowledged each poison event; None: it is unknown whether it was accepted."""
    timetables: Sequence[Timetable] = ()
    exits: Sequence[Exit] = ()
    strays: Sequence[int] = ()
    drained: bool = True
    memory: tuple[int, int] = (1, 1)
    """The memory of Redis before the first start and after the last execution was deleted."""


def broken(evidence: Evidence) -> list[str]:
    """Return all broken invariants."""
    return [
        *_check_starts(evidence),
        *_check_schedules(evidence),
        *_check_histories(evidence),
        *_check_tokens(evidence),
        *_check_order(evidence),
        *_check_sums(evidence),
        *_check_left_over(evidence),
        *_check_letters(evidence),
        *_check_processes(evidence),
        *_check_memory(evidence),
        *(f"verify: {finding}" for finding in evidence.facts.findings),
    ]


def not_accepted(evidence: Evidence) -> list[str]:
    """Return the starts that Redis acknowledged and lost in the second before it was killed."""
    return [
        one.execution_id
        for one in evidence.sent
        if one.execution_id not in evidence.facts.executions and not evidence.outages.is_sure(one.answered_at)
    ]


def _check_starts(evidence: Evidence) -> Iterator[str]:
    """Every accepted start has ended as its model expects."""
    for one in evidence.sent:
        found = evidence.facts.executions.get(one.execution_id)
        if found is None:
            if evidence.outages.is_sure(one.answered_at):
                yield f"{one.execution_id} was accepted, and is lost"
            continue
        expected = one.kind.expected(one.inputs)
        kind = (found.error or {}).get("kind")
        actual = End(found.status, found.outcome if expected.status == "complete" else None, kind)
        if actual != expected:
            yield f"{one.execution_id} ended as {actual}, not as {expected}: {found.error}"
    known = {one.execution_id for one in evidence.sent}
    for name in evidence.facts.executions:
        if not known & {name, name.partition(":")[0]}:
            yield f"{name} was not started by a producer"


def _check_schedules(evidence: Evidence) -> Iterator[str]:
    """Every slot has started once, none was skipped, and slots that must wait for each other did so."""
    for table in evidence.timetables:
        kept = evidence.facts.schedules.get(table.name)
        if kept is None:
            continue  # its registration is lost; _check_starts reports its executions if they are lost
        counts = {name: kept[name] for name in ("started", "missed", "skipped")}
        if counts != {"started": table.count, "missed": 0, "skipped": 0} or kept["open"] or kept["queued"]:
            yield f"{table.name}: {table.count} slots were due, and its record is {kept}"
        found = [evidence.facts.executions.get(name) for name in table.execution_ids]
        if None in found:
            yield f"{table.name}: a slot has started no execution"
        if table.overlap == "queue":
            times = [at for one in found if one for at in (one.created_at, one.ended_at)]
            if times != sorted(times):
                yield f"{table.name}: a slot did not wait for the previous one: {times}"


def _completions(found: Execution) -> Counter[tuple[str, int]]:
    return Counter((one["step"], one["run_id"]) for one in found.history if one.get("to") == "complete")


def _check_histories(evidence: Evidence) -> Iterator[str]:
    """Each step was accepted exactly once: once per run, and in one run unless it is reset."""
    repeating = {one.execution_id: one.kind.repeats for one in evidence.sent}
    for name, found in evidence.facts.executions.items():
        completions = _completions(found)
        for (step, run_id), count in completions.items():
            if count > 1:
                yield f"{name}: run {run_id} of {step} was accepted {count} times"
        runs = Counter(step for step, _ in completions)
        for step, count in runs.items():
            if count > 1 and step not in repeating.get(name, ()):
                yield f"{name}: {step} was accepted in {count} runs"
        for step, unit in found.units.items():
            if unit["status"] == "complete" and (step, unit["run_id"]) not in completions:
                yield f"{name}: {step} is complete, but not in its history"


def _check_tokens(evidence: Evidence) -> Iterator[str]:
    """The output of a step comes from the dispatch that was active when it completed."""
    for name, found in evidence.facts.executions.items():
        for step, unit in found.units.items():
            output = unit.get("output")
            if unit["status"] != "complete" or not isinstance(output, dict) or "run_id" not in output:
                continue
            source = (output["run_id"], output["attempt"])
            if source != (unit["run_id"], unit["attempt"]):
                accepted = f"run {unit['run_id']} attempt {unit['attempt']}"
                yield f"{name}: {step} has the output of run {source[0]} attempt {source[1]} as {accepted}"


def _check_order(evidence: Evidence) -> Iterator[str]:
    """No step was dispatched before its dependencies were final."""
    for one in evidence.sent:
        found = evidence.facts.executions.get(one.execution_id)
        needs = {step["id"]: step.get("depends_on", []) for step in one.kind.document["steps"]}
        finished: set[str] = set()
        for entry in found.history if found else ():
            step = entry.get("step", "")
            if entry.get("to") == "in_progress" and not finished.issuperset(needs.get(step, ())):
                missing = sorted(set(needs[step]) - finished)
                yield f"{one.execution_id}: {step} was dispatched before {', '.join(missing)}"
            if entry.get("to") in FINAL_STATUSES:
                finished.add(step)


def _check_sums(evidence: Evidence) -> Iterator[str]:
    """A shared counter equals the number of completions that add to it."""
    kinds = {one.kind.name: one.kind for one in evidence.sent if one.kind.adds}
    for kind in kinds.values():
        members = [one.execution_id for one in evidence.sent if one.kind is kind]
        found = [evidence.facts.executions[name] for name in members if name in evidence.facts.executions]
        counted = sum(one.units[str(kind.adds)]["status"] == "complete" for one in found)
        total = evidence.facts.totals.get(kind.group, 0)
        if total != counted:
            yield f"{kind.group}: {counted} completions have added {total}"


def _check_left_over(evidence: Evidence) -> Iterator[str]:
    if not evidence.drained:
        yield "the system did not become idle"
    for name, members in evidence.facts.left.items():
        yield f"left over, {name}: {len(members)}, for instance {members[0]}"


def _check_letters(evidence: Evidence) -> Iterator[str]:
    """Each poison event has exactly one dead letter, and there are no others."""
    marks = Counter(letter.mark for letter in evidence.facts.letters)
    for letter in evidence.facts.letters:
        if letter.mark not in evidence.poison:
            yield f"a dead letter that is not poison: {letter.reason[:200]}"
    for mark, count in marks.items():
        if mark in evidence.poison and count > 1:
            yield f"{mark} has {count} dead letters"
    for mark, answered_at in evidence.poison.items():
        if not marks[mark] and evidence.outages.is_sure(answered_at):
            yield f"{mark} has no dead letter"


def _check_processes(evidence: Evidence) -> Iterator[str]:
    """A process exits if and only if it is stopped. A stock worker may exit because of defects in RQ."""
    for one in evidence.exits:
        if one.role != "stock":
            yield f"{one.name} {one.how}"
    for pid in evidence.strays:
        yield f"process {pid} was left behind"


def _check_memory(evidence: Evidence) -> Iterator[str]:
    before, after = evidence.memory
    if after > before * MAX_GROWTH + SPARE_BYTES:
        yield f"Redis used {before:,} bytes before the first start, and {after:,} after all was deleted"
