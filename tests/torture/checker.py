"""The invariants of a torture: a pure function of what was sent and what was found.

Each function yields the sentences that say what is broken; none of them is to say anything.
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
SETTLED = ("complete", "failed", "skipped", "filtered", "cancelled", "halted")
MOST_GROWTH, SPARE_BYTES = 1.1, 1_500_000


@dataclass
class Evidence:
    """All that a judgement needs."""

    sent: Sequence[Sent]
    outages: Outages
    facts: Facts
    poison: Mapping[str, float | None] = field(default_factory=dict)
    """When each was answered by Redis; None: nobody knows whether it was taken."""
    timetables: Sequence[Timetable] = ()
    exits: Sequence[Exit] = ()
    strays: Sequence[int] = ()
    drained: bool = True
    memory: tuple[int, int] = (1, 1)
    """Used by Redis before the first start, and after the last execution was deleted."""


def broken(evidence: Evidence) -> list[str]:
    """Everything that is not as it must be."""
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
    """Starts that Redis had answered, and lost in the second before it was killed."""
    return [
        one.execution_id
        for one in evidence.sent
        if one.execution_id not in evidence.facts.executions and not evidence.outages.is_sure(one.answered_at)
    ]


def _check_starts(evidence: Evidence) -> Iterator[str]:
    """Every accepted start has come to what the model says."""
    for one in evidence.sent:
        found = evidence.facts.executions.get(one.execution_id)
        if found is None:
            if evidence.outages.is_sure(one.answered_at):
                yield f"{one.execution_id} was accepted, and is lost"
            continue
        wanted = one.kind.expected(one.inputs)
        kind = (found.error or {}).get("kind")
        came_to = End(found.status, found.outcome if wanted.status == "complete" else None, kind)
        if came_to != wanted:
            yield f"{one.execution_id} came to {came_to}, not to {wanted}: {found.error}"
    known = {one.execution_id for one in evidence.sent}
    for name in evidence.facts.executions:
        if not known & {name, name.partition(":")[0]}:
            yield f"nobody has started {name}"


def _check_schedules(evidence: Evidence) -> Iterator[str]:
    """Every slot has begun once, none was passed over, and those that wait for each other have done so."""
    for table in evidence.timetables:
        kept = evidence.facts.schedules.get(table.name)
        if kept is None:
            continue  # its registration is gone, and its executions are told of as lost if they are
        counts = {name: kept[name] for name in ("started", "missed", "skipped")}
        if counts != {"started": table.count, "missed": 0, "skipped": 0} or kept["open"] or kept["queued"]:
            yield f"{table.name}: {table.count} slots have come, and it says {kept}"
        found = [evidence.facts.executions.get(name) for name in table.execution_ids]
        if None in found:
            yield f"{table.name}: a slot has begun no execution"
        if table.overlap == "queue":
            times = [at for one in found if one for at in (one.created_at, one.ended_at)]
            if times != sorted(times):
                yield f"{table.name}: a slot has not waited for the one before: {times}"


def _completions(found: Execution) -> Counter[tuple[str, int]]:
    return Counter((one["step"], one["run_id"]) for one in found.history if one.get("to") == "complete")


def _check_histories(evidence: Evidence) -> Iterator[str]:
    """Each step was accepted exactly once: once in a run, and in one run unless it is set back."""
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
                yield f"{name}: {step} is complete, and its history does not say so"


def _check_tokens(evidence: Evidence) -> Iterator[str]:
    """What a step has was brought by the dispatch that was out when it completed."""
    for name, found in evidence.facts.executions.items():
        for step, unit in found.units.items():
            output = unit.get("output")
            if unit["status"] != "complete" or not isinstance(output, dict) or "run_id" not in output:
                continue
            brought = (output["run_id"], output["attempt"])
            if brought != (unit["run_id"], unit["attempt"]):
                accepted = f"run {unit['run_id']} attempt {unit['attempt']}"
                yield f"{name}: {step} has the output of run {brought[0]} attempt {brought[1]} as {accepted}"


def _check_order(evidence: Evidence) -> Iterator[str]:
    """No step was dispatched before what it needs was at its end."""
    for one in evidence.sent:
        found = evidence.facts.executions.get(one.execution_id)
        needs = {step["id"]: step.get("depends_on", []) for step in one.kind.document["steps"]}
        settled: set[str] = set()
        for entry in found.history if found else ():
            step = entry.get("step", "")
            if entry.get("to") == "in_progress" and not settled.issuperset(needs.get(step, ())):
                missing = sorted(set(needs[step]) - settled)
                yield f"{one.execution_id}: {step} was dispatched before {', '.join(missing)}"
            if entry.get("to") in SETTLED:
                settled.add(step)


def _check_sums(evidence: Evidence) -> Iterator[str]:
    """What completions have added to a shared number is how many there were."""
    kinds = {one.kind.name: one.kind for one in evidence.sent if one.kind.adds}
    for kind in kinds.values():
        members = [one.execution_id for one in evidence.sent if one.kind is kind]
        found = [evidence.facts.executions[name] for name in members if name in evidence.facts.executions]
        counted = sum(one.units[str(kind.adds)]["status"] == "complete" for one in found)
        total = evidence.facts.totals.get(kind.group, 0)
        if total != counted:
            yield f"{kind.group}: {counted} completions have added up to {total}"


def _check_left_over(evidence: Evidence) -> Iterator[str]:
    if not evidence.drained:
        yield "the system did not come to rest"
    for name, members in evidence.facts.left.items():
        yield f"left over, {name}: {len(members)}, for instance {members[0]}"


def _check_letters(evidence: Evidence) -> Iterator[str]:
    """The dead letters are the poison that was sent, once each."""
    marks = Counter(letter.mark for letter in evidence.facts.letters)
    for letter in evidence.facts.letters:
        if letter.mark not in evidence.poison:
            yield f"a dead letter that was no poison: {letter.reason[:200]}"
    for mark, count in marks.items():
        if mark in evidence.poison and count > 1:
            yield f"{mark} has {count} dead letters"
    for mark, answered_at in evidence.poison.items():
        if not marks[mark] and evidence.outages.is_sure(answered_at):
            yield f"{mark} has no dead letter"


def _check_processes(evidence: Evidence) -> Iterator[str]:
    """Nobody leaves unless he is told to, and then he does. A stock worker leaves by RQ's own faults."""
    for one in evidence.exits:
        if one.role != "stock":
            yield f"{one.name} {one.how}"
    for pid in evidence.strays:
        yield f"process {pid} was left behind"


def _check_memory(evidence: Evidence) -> Iterator[str]:
    before, after = evidence.memory
    if after > before * MOST_GROWTH + SPARE_BYTES:
        yield f"Redis used {before:,} bytes before the first start, and {after:,} when all was deleted"
