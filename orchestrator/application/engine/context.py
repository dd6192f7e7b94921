"""The context of an expression: a lazy view of an execution, so that reading one step costs one step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, Protocol

from orchestrator.application.records.events import Moment
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.redaction.by_key import redact_by_key
from orchestrator.application.spec.graph import Graph
from orchestrator.application.values.unit_id import step_of

MAX_LOGGED_VALUES = 20
MAX_LOGGED_LENGTH = 1_000


class Draft(Protocol):
    """The part of a draft (`draft.py`) that the views read."""

    record: WorkflowRecord
    graph: Graph
    moment: Moment
    log_count: int

    @property
    def inputs(self) -> dict[str, Any]: ...

    @property
    def state(self) -> Mapping[str, Any]: ...

    def step(self, step_id: str) -> StepRecord: ...

    def unit(self, unit: str) -> StepRecord | None: ...

    def require_unit(self, unit: str) -> StepRecord: ...

    def shared(self, scope: str) -> Mapping[str, Any]: ...

    def note(self, **entry: Any) -> None: ...


class StepsView(Mapping[str, Any]):
    """The roots `steps` and `flows`: the steps whose output is not null, in spec order."""

    def __init__(self, draft: Draft, shape: Callable[[Any], Any]) -> None:
        self._draft, self._shape = draft, shape

    def __getitem__(self, step_id: str) -> Any:
        if step_id in self._draft.graph.index:
            output = self._draft.step(step_id).output
            if output is not None:
                return self._shape(output)
        raise KeyError(step_id)

    def __iter__(self) -> Iterator[str]:
        return (s for s in self._draft.graph.order if self._draft.step(s).output is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def descend(self, parts: Sequence[str]) -> tuple[Any, Sequence[str]] | None:
        """Descend into a step. Ids may contain dots: the longest declared id that matches the path wins."""
        found = self._draft.graph.find_step(parts)
        output = None if found is None else self._draft.step(found[0]).output
        return None if found is None or output is None else (self._shape(output), found[1])


class StateView(Mapping[str, Any]):
    """The root `state`: the stored values, with those merged by the decision on top, and without those that
    it has dropped. The keys are sorted, because a store need not keep their order, and a copy must not depend
    on it."""

    def __init__(
        self, stored: Mapping[str, Any], merged: Mapping[str, Any], dropped: Set[str] = frozenset()
    ) -> None:
        self._stored, self._merged, self._dropped = stored, merged, dropped

    def __getitem__(self, key: str) -> Any:
        if key in self._dropped:
            raise KeyError(key)
        return self._merged[key] if key in self._merged else self._stored[key]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._stored, *self._merged} - self._dropped))

    def __len__(self) -> int:
        return len({*self._stored, *self._merged} - self._dropped)


class StatusView(Mapping[str, Any]):
    """The root `ctx.status` or `ctx.error`: one value for each step."""

    def __init__(self, draft: Draft, read: Callable[[Any], Any]) -> None:
        self._draft, self._read = draft, read

    def __getitem__(self, step_id: str) -> Any:
        if step_id not in self._draft.graph.index:
            raise KeyError(step_id)
        return self._read(self._draft.step(step_id))

    def __iter__(self) -> Iterator[str]:
        return iter(self._draft.graph.order)

    def __len__(self) -> int:
        return len(self._draft.graph.order)

    def descend(self, parts: Sequence[str]) -> tuple[Any, Sequence[str]] | None:
        found = self._draft.graph.find_step(parts)
        return None if found is None else (self[found[0]], found[1])


class KvView(Mapping[str, Any]):
    """The root `kv`: each scope under its name, `local` for the step's own last output. Any other key reads
    the flow scope, and then the global scope."""

    def __init__(self, draft: Draft, unit: str | None) -> None:
        self._draft, self._unit = draft, unit

    def __getitem__(self, key: str) -> Any:
        match key:
            case "flow":
                return self._draft.state
            case "global" | "flow_group":
                return self._draft.shared(key)
            case "local":
                return self._local()
        state = self._draft.state
        return state[key] if key in state else self._draft.shared("global")[key]

    def _local(self) -> Mapping[str, Any]:
        output = None if self._unit is None else self._draft.require_unit(step_of(self._unit)).output
        return output if isinstance(output, dict) else {}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._draft.state, *self._draft.shared("global")}))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Context(Mapping[str, Any]):
    """All roots of the language for one unit of one execution.

    `fresh` is an output that a branch evaluates. It is the root `output`, and each of its keys is a root too,
    which may shadow the others. Further roots are passed by name: `result`, or the item of a map and its
    `index`. The root `kv` can be named, but is not iterated: its values are already in the state.
    """

    _ROOTS = ("steps", "input", "state", "flows", "ctx")

    def __init__(
        self, draft: Draft, unit: str | None = None, fresh: Mapping[str, Any] | None = None, **roots: Any
    ) -> None:
        self._draft, self._unit = draft, unit
        self._fresh: dict[str, Any] = roots
        if fresh is not None:
            self._fresh = {**roots, "output": fresh, **fresh}

    def __getitem__(self, root: str) -> Any:
        if root in self._fresh:
            return self._fresh[root]
        draft = self._draft
        match root:
            case "input":
                return draft.inputs
            case "state":
                return draft.state
            case "steps":
                return StepsView(draft, lambda output: {"output": output})
            case "flows":
                return StepsView(draft, lambda output: output)
            case "kv":
                return KvView(draft, self._unit)
            case "ctx":
                return self._ctx()
        raise KeyError(root)

    def descend(self, parts: Sequence[str]) -> tuple[Any, Sequence[str]] | None:
        try:
            return self[parts[0]], parts[1:]
        except KeyError:
            return None

    def _ctx(self) -> dict[str, Any]:
        draft, record = self._draft, self._draft.record
        ctx: dict[str, Any] = {
            "workflow": {
                "id": record.workflow_id,
                "name": record.spec.name,
                "execution_id": record.execution_id,
                "group": record.group,
                "started_at": record.created_at,
            },
            "status": StatusView(draft, lambda step: step.status.value),
            "error": StatusView(draft, lambda step: step.error),
            "now": draft.moment.iso,
        }
        if self._unit is not None:
            step_id = step_of(self._unit)
            step = draft.unit(self._unit) or draft.step(step_id)
            ctx["step"] = {"id": step_id, "run_id": step.run_id, "attempt": step.attempt}
            ctx["loop"] = {"iteration": step.iteration, "value": step.loop_value}
        return ctx

    def record_log(self, value: Any) -> None:
        """Add a value that an expression logs to the history, within limits on its length and number."""
        draft, unit = self._draft, self._unit
        draft.log_count += 1
        if draft.log_count <= MAX_LOGGED_VALUES:
            redacted = redact_by_key(value, draft.record.spec.redact)
            text = json.dumps(redacted, ensure_ascii=False)[:MAX_LOGGED_LENGTH]
            draft.note(**({} if unit is None else {"step": unit}), log=text)

    def __iter__(self) -> Iterator[str]:
        yield from (root for root in self._ROOTS if root not in self._fresh)
        yield from self._fresh

    def __len__(self) -> int:
        return sum(1 for _ in self)
