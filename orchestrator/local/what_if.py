"""What if an execution had run by another spec: its recorded results are played through it, in memory.

    differences = what_if(record, load_spec(text))
    [one for one in differences.steps if one.verdict != "same"]

Both specs are played by the same functions that decide everywhere, the old one first: from that follows with
which inputs each step was asked. A step that the new spec asks the same is answered with what the record has;
one that would be asked otherwise would run again, and nobody knows what it would bring, nor what comes after.
Nothing is executed, and nothing is written. A record keeps the last result of each step, so loops are played
as one round; delays are over at once, there is room for everybody, nothing is compensated and nobody told.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any, Literal

from orchestrator.application.engine.transitions import decide
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import Moment, ResultEvent, StepEvent, TimerEvent, parse_iso_ms
from orchestrator.application.records.record import WorkflowRecord, find_due_timers
from orchestrator.application.records.record_view import RecordView, make_record_view
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import LoadedSpec, StepSpec
from orchestrator.application.spec.validation import check_inputs

Verdict = Literal["same", "different", "new", "gone", "unknown"]
END_OF_TIME_MS = 2**62
MAX_VALUE_CHARS = 60
"""Characters of a value in words."""

_JUDGED = frozenset({"declared", "rejected", "branch_target"})
"""Failures that a branch made of what the executor had returned."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What the new spec makes of a step, or of the outcome (then `step` is empty); `how` says it in words.
    `before` and `after` are statuses."""

    step: str
    verdict: Verdict
    how: str = ""
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Differences:
    """`not_reproduced` are steps that not even the old spec brings to where the record has them: operators,
    timeouts of the workflow, earlier rounds or shared values have had a part in it."""

    steps: tuple[Difference, ...]
    outcome: Difference
    not_reproduced: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        return all(one.verdict == "same" for one in (*self.steps, self.outcome))


def what_if(record: WorkflowRecord, new: LoadedSpec) -> Differences:
    """What would be different if this execution had run by that spec."""
    inputs, problems = check_inputs(new.spec, record.inputs)
    if problems:
        how = "the start would be refused: " + "; ".join(map(str, problems))
        return Differences((), Difference("", "different", how, record.status.value))
    say = _Saying(make_record_view(record, new.spec.redact))
    before = _Play(record, record.loaded, record.inputs, None, say)
    after = _Play(record, new, inputs, before, say)
    steps = tuple(_compare(before, after))
    missed = [
        step_id
        for step_id, step in record.steps.items()
        if step.status is not before.record.steps[step_id].status
    ]
    return Differences(steps, _outcome(before, after, steps), tuple(missed))


class _Saying:
    """Values in words: without secrets, and not all of what is long."""

    def __init__(self, shown: RecordView) -> None:
        self._shown = shown

    def value(self, name: str, value: Any) -> str:
        text = json.dumps(self._shown({name: value})[name], ensure_ascii=False)
        return text if len(text) <= MAX_VALUE_CHARS else f"{text[: MAX_VALUE_CHARS - 1]}…"

    def change(self, name: str, was: Any, would_be: Any) -> str:
        return f"its {name} would be {self.value(name, would_be)} instead of {self.value(name, was)}"

    def text(self, text: str) -> str:
        return self._shown.text(text)


# ---- playing


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a unit was asked to do."""

    work: Mapping[str, Any]
    inputs: Mapping[str, Any]


@dataclass(slots=True)
class _Play:
    """A spec played with the results of a record; `first` is the play of the spec that they come from.
    `unanswered` says why nobody knows what a unit would bring."""

    source: WorkflowRecord
    loaded: LoadedSpec
    inputs: dict[str, Any]
    first: _Play | None
    say: _Saying
    record: WorkflowRecord = field(init=False)
    asked: dict[str, _Asked] = field(init=False, default_factory=dict)
    unanswered: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        steps = tuple(self._plain(step) for step in self.loaded.spec.steps)
        spec = replace(
            self.loaded.spec, steps=steps, max_workers=None, concurrency=None, timeout_s=None, webhook=None
        )
        self.record = WorkflowRecord(
            replace(self.loaded, spec=spec),
            self.source.execution_id,
            self.inputs,
            self.source.created_at,
            group=self.source.group,
            priority=self.source.priority,
        )
        self._run()

    def _run(self) -> None:
        """One result after the other, in the order in which they came."""
        at_ms, turn, events = parse_iso_ms(self.source.created_at), 0, list[StepEvent]()
        answers: list[tuple[int, int, ResultEvent]] = []
        while True:
            turn += 1
            decided = decide(self.record, events, Moment(at_ms, str(turn), str(turn)))
            self.record.apply(decided.changes)
            for number, job in enumerate(decided.changes.jobs):
                answer = self._answer(job)
                if answer is not None:
                    heappush(answers, (self._ended_ms(job.step_id), turn * 100_000 + number, answer))
            events = [] if self.record.is_final else self._wakes()
            if not events and answers and not self.record.is_final:
                ended_ms, _, answer = heappop(answers)
                at_ms, events = max(at_ms, ended_ms), [answer]
            elif events:
                at_ms = max(at_ms, *(one.due_ms for one in find_due_timers(self.record, END_OF_TIME_MS)))
            if not events and not decided.changes.more:
                return

    def _wakes(self) -> list[StepEvent]:
        weid = self.record.workflow_execution_id
        timers = find_due_timers(self.record, END_OF_TIME_MS)
        return [TimerEvent(one.kind, weid, one.step_id, one.token) for one in timers if one.kind == "wake"]

    def _answer(self, job: DispatchJob) -> ResultEvent | None:
        unit = job.step_id
        asked = _Asked(_work_of(self._spec_of(unit)), job.inputs)
        why = self._why_not(unit, asked)
        self.asked.setdefault(unit, asked)
        if why is not None:
            self.unanswered[unit] = why
            return None
        result = _recorded(self.source, unit)
        assert result is not None
        output, error = result
        weid = self.record.workflow_execution_id
        return ResultEvent(weid, unit, output, error, job.run_id, job.attempt, job.token)

    def _why_not(self, unit: str, asked: _Asked) -> str | None:
        """Why the record has no answer to this."""
        if unit in self.asked:
            return "it would run once more, and only its last result is recorded"
        if self.first is not None:
            known = self.first.asked.get(unit)
            if known is None:
                return "it would run, and has no recorded output"
            changed = _changes(known, asked, self.say)
            if changed:
                return f"it would run again: {changed}"
            step_id = unit.partition("#")[0]
            old, new = self.first._spec_of(step_id).output, self._spec_of(step_id).output
            if old is not None and old != new:
                return "its output is mapped otherwise, and what its executor returned is not recorded"
        return None if _recorded(self.source, unit) is not None else "it has no recorded output"

    def _ended_ms(self, unit: str) -> int:
        one = _unit(self.source, unit)
        return 0 if one is None or one.ended_at is None else parse_iso_ms(one.ended_at)

    def _spec_of(self, unit: str) -> StepSpec:
        """The step as it was written."""
        return self.loaded.spec.steps[self.loaded.graph.index[unit.partition("#")[0]]]

    def _plain(self, step: StepSpec) -> StepSpec:
        """A step that takes a recorded result as it is: in one attempt, whoever brought it, and with its
        output already mapped."""
        output = step.output
        if output is not None and step.kind not in ("switch", "delay") and self._is_mapped(step):
            output = {key: {"obj.get": [{"var": "result"}, key]} for key in output}
        return replace(
            step,
            kind="task" if step.kind in ("wait", "workflow") else step.kind,
            output=output,
            retry=None,
            max_attempts=1,
            attempts_on="error",
            wait=None,
            child=None,
            loop=None,
            compensate=None,
            concurrency=None,
            timeout_s=None,
            heartbeat_s=None,
        )

    def _is_mapped(self, step: StepSpec) -> bool:
        """Whether the record has the output of a step as its mapping left it."""
        position = self.source.graph.index.get(step.id)
        return position is not None and self.source.spec.steps[position].output is not None


def _recorded(record: WorkflowRecord, unit: str) -> tuple[Any, dict[str, Any] | None] | None:
    """What a unit brought when it came to its end: an output or an error; None when it brought nothing."""
    one = _unit(record, unit)
    if one is None or not _has_brought(record, unit, one):
        return None
    kind = (one.error or {}).get("kind")
    if one.error is None or kind in _JUDGED or (kind == "expression" and not _is_error(one.output)):
        return one.output, None
    return None, one.error


def _unit(record: WorkflowRecord, unit: str) -> StepRecord | None:
    return (record.items if "#" in unit else record.steps).get(unit)


def _has_brought(record: WorkflowRecord, unit: str, one: StepRecord) -> bool:
    spec = record.spec.steps[record.graph.index[unit.partition("#")[0]]]
    if one.status in (StepStatus.COMPLETE, StepStatus.HALTED):
        return True
    is_told = one.error is not None or one.output is not None
    was_asked = one.dispatches > 0 or spec.kind == "wait"
    return one.status in (StepStatus.FAILED, StepStatus.SKIPPED) and is_told and was_asked


def _is_error(output: Any) -> bool:
    return isinstance(output, dict) and output.get("ok") is False and "error" in output


def _work_of(step: StepSpec) -> dict[str, Any]:
    """What a step does when it is asked, whatever its inputs are."""
    wait, child = step.wait, step.child
    return {
        "executor": step.fn,
        "source": step.source,
        "signals": None if wait is None else (wait.signals, wait.is_any),
        "workflow": None if child is None else (child.name, child.document),
        "loop": step.loop is not None,
    }


def _changes(before: _Asked, after: _Asked, say: _Saying) -> str:
    """What is asked otherwise, in words; empty when nothing is."""
    found = [f"another {name}" for name in before.work if before.work[name] != after.work[name]]
    for name in sorted({*before.inputs, *after.inputs}):
        pair = [one.inputs.get(name, _NOTHING) for one in (before, after)]
        if pair[0] != pair[1]:
            old, new = ("nothing" if one is _NOTHING else say.value(name, one) for one in pair)
            found.append(f"input {name} would be {new} instead of {old}")
    return "; ".join(found)


_NOTHING = object()


# ---- comparing


def _compare(before: _Play, after: _Play) -> Iterator[Difference]:
    """Step by step, in the order of the new spec; those that are gone at the end."""
    for step_id in after.loaded.graph.order:
        if step_id in before.loaded.graph.index:
            yield _compare_step(step_id, before, after)
        else:
            status = after.record.steps[step_id].status
            how = _why(step_id, after) or f"it would be {status}"
            yield Difference(step_id, "new", how, None, status.value)
    for step_id in before.loaded.graph.order:
        if step_id not in after.loaded.graph.index:
            yield Difference(step_id, "gone", "", before.record.steps[step_id].status.value)


def _compare_step(step_id: str, before: _Play, after: _Play) -> Difference:
    old, new = before.record.steps[step_id], after.record.steps[step_id]
    statuses = (old.status.value, new.status.value)
    why = _why(step_id, after)
    if why is not None and why != _why(step_id, before):
        return Difference(step_id, "unknown", why, *statuses)
    if old.status is not new.status:
        if not new.is_final and after.unanswered:
            return Difference(step_id, "unknown", _after(after), *statuses)
        because = new.reason or (new.error or {}).get("message")
        how = f"{new.status} instead of {old.status}" + (f": {after.say.text(because)}" if because else "")
        return Difference(step_id, "different", how, *statuses)
    for name, was, would_be in (("output", old.output, new.output), ("error", old.error, new.error)):
        if was != would_be:
            how = after.say.change(name, was, would_be)
            return Difference(step_id, "different", how, *statuses)
    return Difference(step_id, "same", "", *statuses)


def _why(step_id: str, play: _Play) -> str | None:
    """Why nobody knows what a step, or an item of it, would bring."""
    for unit, why in play.unanswered.items():
        if unit.partition("#")[0] == step_id:
            return why if unit == step_id else f"item {unit.partition('#')[2]}: {why}"
    return None


def _after(play: _Play) -> str:
    steps = dict.fromkeys(unit.partition("#")[0] for unit in play.unanswered)
    return f"it depends on what {', '.join(steps)} would bring"


def _outcome(before: _Play, after: _Play, steps: tuple[Difference, ...]) -> Difference:
    old, new = before.record, after.record
    statuses = (old.status.value, new.status.value)
    if any(one.verdict == "unknown" for one in steps) or _is_open_for_new(after, steps):
        return Difference("", "unknown", _after(after), *statuses)
    for name, was, would_be in (
        ("status", *statuses),
        ("outcome", old.outcome, new.outcome),
        ("error", old.error, new.error),
    ):
        if was != would_be:
            how = after.say.change(name, was, would_be)
            return Difference("", "different", how, *statuses)
    return Difference("", "same", "", *statuses)


def _is_open_for_new(after: _Play, steps: tuple[Difference, ...]) -> bool:
    """Whether a step that is new has no output, so that nobody knows how it ends."""
    return any(one.verdict == "new" and _why(one.step, after) is not None for one in steps)
