"""What if an execution had run with another spec? Replays its recorded results with that spec, in memory.

    differences = what_if(record, load_spec(text))
    [one for one in differences.steps if one.verdict != "same"]

Both specs are replayed by the functions that make every decision, the old spec first, to find the inputs of
each step. If the new spec gives a step the same work and inputs, the step gets its recorded result. Otherwise
it would run again: its result is unknown, and so is everything that depends on it.
Nothing is executed or written. A record has only the last result of each step, so loops are replayed as one
round. Delays end at once, slots are unlimited, nothing is compensated, and webhooks are not sent.
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
from orchestrator.application.values.unit_id import UnitId, step_of

Verdict = Literal["same", "different", "new", "gone", "unknown"]
END_OF_TIME_MS = 2**62
MAX_VALUE_CHARS = 60
"""The maximum length of a value in a message."""

_BRANCH_FAILURES = frozenset({"declared", "rejected", "branch_target"})
"""Failures that a branch decided after the executor had returned an output."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of a step, or of the outcome (then `step` is empty). `how` describes it; `before` and
    `after` are statuses."""

    step: str
    verdict: Verdict
    how: str = ""
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Differences:
    """`not_reproduced` are steps that do not reach their recorded status even with the old spec: operators,
    timeouts of the workflow, earlier rounds or shared values have influenced them."""

    steps: tuple[Difference, ...]
    outcome: Difference
    not_reproduced: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        return all(one.verdict == "same" for one in (*self.steps, self.outcome))


def what_if(record: WorkflowRecord, new: LoadedSpec) -> Differences:
    """Find what would be different if this execution had run with the new spec."""
    inputs, problems = check_inputs(new.spec, record.inputs)
    if problems:
        how = "the start would be rejected: " + "; ".join(map(str, problems))
        return Differences((), Difference("", "different", how, record.status.value))
    formatter = _Formatter(make_record_view(record, new.spec.redact))
    before = _Replay(record, record.loaded, record.inputs, None, formatter)
    after = _Replay(record, new, inputs, before, formatter)
    steps = tuple(_compare(before, after))
    not_reproduced = [
        step_id
        for step_id, step in record.steps.items()
        if step.status is not before.record.steps[step_id].status
    ]
    return Differences(steps, _compare_outcome(before, after, steps), tuple(not_reproduced))


class _Formatter:
    """Formats values for messages: without secrets, and cut if they are long."""

    def __init__(self, view: RecordView) -> None:
        self._view = view

    def value(self, name: str, value: Any) -> str:
        text = json.dumps(self._view({name: value})[name], ensure_ascii=False)
        return text if len(text) <= MAX_VALUE_CHARS else f"{text[: MAX_VALUE_CHARS - 1]}…"

    def change(self, name: str, was: Any, would_be: Any) -> str:
        return f"its {name} would be {self.value(name, would_be)} instead of {self.value(name, was)}"

    def text(self, text: str) -> str:
        return self._view.text(text)


# ---- replaying


@dataclass(frozen=True, slots=True)
class _Request:
    """The work and the inputs of a unit."""

    work: Mapping[str, Any]
    inputs: Mapping[str, Any]


@dataclass(slots=True)
class _Replay:
    """A spec replayed with the results of a record. `first` is the replay of the spec that they come from, if
    this is another one. `unknown` has the reason why the result of a unit is unknown."""

    source: WorkflowRecord
    loaded: LoadedSpec
    inputs: dict[str, Any]
    first: _Replay | None
    formatter: _Formatter
    record: WorkflowRecord = field(init=False)
    requests: dict[str, _Request] = field(init=False, default_factory=dict)
    unknown: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        steps = tuple(self._simplify(step) for step in self.loaded.spec.steps)
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
        """Apply one result after the other, in the order in which they were recorded."""
        at_ms, turn, events = parse_iso_ms(self.source.created_at), 0, list[StepEvent]()
        results: list[tuple[int, int, ResultEvent]] = []
        while True:
            turn += 1
            decided = decide(self.record, events, Moment(at_ms, str(turn), str(turn)))
            self.record.apply(decided.changes)
            for number, job in enumerate(decided.changes.jobs):
                result = self._find_result(job)
                if result is not None:
                    heappush(results, (self._ended_ms(job.step_id), turn * 100_000 + number, result))
            events = [] if self.record.is_final else self._wake_events()
            if not events and results and not self.record.is_final:
                ended_ms, _, result = heappop(results)
                at_ms, events = max(at_ms, ended_ms), [result]
            elif events:
                at_ms = max(at_ms, *(one.due_ms for one in find_due_timers(self.record, END_OF_TIME_MS)))
            if not events and not decided.changes.has_more_ready:
                return

    def _wake_events(self) -> list[StepEvent]:
        weid = self.record.workflow_execution_id
        timers = find_due_timers(self.record, END_OF_TIME_MS)
        return [TimerEvent(one.kind, weid, one.step_id, one.token) for one in timers if one.kind == "wake"]

    def _find_result(self, job: DispatchJob) -> ResultEvent | None:
        """The recorded result for a job; None, with the reason in `unknown`, if there is none."""
        unit = job.step_id
        request = _Request(_work_of(self._spec_of(unit)), job.inputs)
        reason = self._why_unknown(unit, request)
        self.requests.setdefault(unit, request)
        if reason is not None:
            self.unknown[unit] = reason
            return None
        result = _recorded_result(self.source, unit)
        assert result is not None
        output, error = result
        weid = self.record.workflow_execution_id
        return ResultEvent(weid, unit, output, error, job.run_id, job.attempt, job.token)

    def _why_unknown(self, unit: str, request: _Request) -> str | None:
        """Why the record has no result for a request; None if it has one."""
        if unit in self.requests:
            return "it would run once more, and only its last result is recorded"
        if self.first is not None:
            known = self.first.requests.get(unit)
            if known is None:
                return "it would run, and has no recorded output"
            changed = _describe_changes(known, request, self.formatter)
            if changed:
                return f"it would run again: {changed}"
            step_id = step_of(unit)
            old, new = self.first._spec_of(step_id).output, self._spec_of(step_id).output
            if old is not None and old != new:
                return "its output mapping has changed, and the output of its executor is not recorded"
        return None if _recorded_result(self.source, unit) is not None else "it has no recorded output"

    def _ended_ms(self, unit: str) -> int:
        one = _find_unit(self.source, unit)
        return 0 if one is None or one.ended_at is None else parse_iso_ms(one.ended_at)

    def _spec_of(self, unit: str) -> StepSpec:
        """The step as it is written in the document."""
        return self.loaded.spec.steps[self.loaded.graph.index[step_of(unit)]]

    def _simplify(self, step: StepSpec) -> StepSpec:
        """A step that takes a recorded result as it is: in one attempt, from any kind of step, and with its
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
        """Whether the record has the mapped output of a step."""
        position = self.source.graph.index.get(step.id)
        return position is not None and self.source.spec.steps[position].output is not None


def _recorded_result(record: WorkflowRecord, unit: str) -> tuple[Any, dict[str, Any] | None] | None:
    """The recorded output or error of a unit; None when it has none."""
    one = _find_unit(record, unit)
    if one is None or not _has_result(record, unit, one):
        return None
    kind = (one.error or {}).get("kind")
    if one.error is None or kind in _BRANCH_FAILURES or (kind == "expression" and not _is_error(one.output)):
        return one.output, None
    return None, one.error


def _find_unit(record: WorkflowRecord, unit: str) -> StepRecord | None:
    return (record.steps if UnitId(unit).is_step else record.items).get(unit)


def _has_result(record: WorkflowRecord, unit: str, one: StepRecord) -> bool:
    spec = record.spec.steps[record.graph.index[step_of(unit)]]
    if one.status in (StepStatus.COMPLETE, StepStatus.HALTED):
        return True
    has_value = one.error is not None or one.output is not None
    was_run = one.dispatches > 0 or spec.kind == "wait"
    return one.status in (StepStatus.FAILED, StepStatus.SKIPPED) and has_value and was_run


def _is_error(output: Any) -> bool:
    return isinstance(output, dict) and output.get("ok") is False and "error" in output


def _work_of(step: StepSpec) -> dict[str, Any]:
    """What a step does, independent of its inputs."""
    wait, child = step.wait, step.child
    return {
        "executor": step.fn,
        "source": step.source,
        "signals": None if wait is None else (wait.signals, wait.is_any),
        "workflow": None if child is None else (child.name, child.document),
        "loop": step.loop is not None,
    }


def _describe_changes(before: _Request, after: _Request, formatter: _Formatter) -> str:
    """Describe how two requests differ; empty when they are equal."""
    found = [f"another {name}" for name in before.work if before.work[name] != after.work[name]]
    for name in sorted({*before.inputs, *after.inputs}):
        pair = [one.inputs.get(name, _NOTHING) for one in (before, after)]
        if pair[0] != pair[1]:
            old, new = ("nothing" if one is _NOTHING else formatter.value(name, one) for one in pair)
            found.append(f"input {name} would be {new} instead of {old}")
    return "; ".join(found)


_NOTHING = object()


# ---- comparing


def _compare(before: _Replay, after: _Replay) -> Iterator[Difference]:
    """The difference of each step, in the order of the new spec; removed steps at the end."""
    for step_id in after.loaded.graph.order:
        if step_id in before.loaded.graph.index:
            yield _compare_step(step_id, before, after)
        else:
            status = after.record.steps[step_id].status
            how = _why_unknown(step_id, after) or f"it would be {status}"
            yield Difference(step_id, "new", how, None, status.value)
    for step_id in before.loaded.graph.order:
        if step_id not in after.loaded.graph.index:
            yield Difference(step_id, "gone", "", before.record.steps[step_id].status.value)


def _compare_step(step_id: str, before: _Replay, after: _Replay) -> Difference:
    old, new = before.record.steps[step_id], after.record.steps[step_id]
    statuses = (old.status.value, new.status.value)
    reason = _why_unknown(step_id, after)
    if reason is not None and reason != _why_unknown(step_id, before):
        return Difference(step_id, "unknown", reason, *statuses)
    if old.status is not new.status:
        if not new.is_final and after.unknown:
            return Difference(step_id, "unknown", _describe_dependency(after), *statuses)
        because = new.reason or (new.error or {}).get("message")
        how = f"{new.status} instead of {old.status}" + (
            f": {after.formatter.text(because)}" if because else ""
        )
        return Difference(step_id, "different", how, *statuses)
    for name, was, would_be in (("output", old.output, new.output), ("error", old.error, new.error)):
        if was != would_be:
            how = after.formatter.change(name, was, would_be)
            return Difference(step_id, "different", how, *statuses)
    return Difference(step_id, "same", "", *statuses)


def _why_unknown(step_id: str, replay: _Replay) -> str | None:
    """Why the result of a step, or of an item of it, is unknown."""
    for unit, reason in replay.unknown.items():
        if step_of(unit) == step_id:
            return reason if unit == step_id else f"item {UnitId(unit).part}: {reason}"
    return None


def _describe_dependency(replay: _Replay) -> str:
    steps = dict.fromkeys(step_of(unit) for unit in replay.unknown)
    return f"it depends on the result of {', '.join(steps)}"


def _compare_outcome(before: _Replay, after: _Replay, steps: tuple[Difference, ...]) -> Difference:
    old, new = before.record, after.record
    statuses = (old.status.value, new.status.value)
    if any(one.verdict == "unknown" for one in steps) or _has_unknown_new_step(after, steps):
        return Difference("", "unknown", _describe_dependency(after), *statuses)
    for name, was, would_be in (
        ("status", *statuses),
        ("outcome", old.outcome, new.outcome),
        ("error", old.error, new.error),
    ):
        if was != would_be:
            how = after.formatter.change(name, was, would_be)
            return Difference("", "different", how, *statuses)
    return Difference("", "same", "", *statuses)


def _has_unknown_new_step(after: _Replay, steps: tuple[Difference, ...]) -> bool:
    """Whether the result of a new step is unknown, and therefore the outcome."""
    return any(one.verdict == "new" and _why_unknown(one.step, after) is not None for one in steps)
