"""The published runfox 0.0.7, with the exceptions that this project has decided on.

Each exception is one method; docs/decisions.md and docs/from-runfox.md have the reasons. They are applied
between two calls of runfox, so that what runfox evaluates next is what this project evaluates:

    complete_a_success    D8 and "ok: false": `max_attempts` repeats a result whose `ok` is false, but no
                          success, unless the step says `attempts_on: any`
    remove_retried_keys   "state after a retry": `ok` and `error` of retried attempts are removed from the
                          state when the step completes, unless a later output has written them

D10, by which double braces are references, needs none: the random documents have no texts with braces.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import runfox

from worlds.documents import Json

ERROR_KEYS = ("ok", "error")


class Oracle:
    def __init__(self, document: Json, inputs: Json) -> None:
        self.backend = runfox.Backend()
        self.workflow = runfox.Workflow.from_dict(deepcopy(document), self.backend, deepcopy(inputs))
        self._repeats = {step["op"] for step in document["steps"] if step.get("attempts_on") == "any"}
        self._last_writers: dict[str, str] = {}

    def advance(self) -> Any:
        return self.workflow.advance()

    def apply(self, op: str, output: Any) -> bool:
        """Apply a result; True if it halts the workflow."""
        result = self.workflow.on_step_result(op, output)
        self.complete_a_success(op, output)
        self.remove_retried_keys(op, output)
        return isinstance(result, runfox.Halt)

    @property
    def record(self) -> Any:
        return self.backend.load(self.workflow.id)

    def complete_a_success(self, op: str, output: Any) -> None:
        is_failed = isinstance(output, dict) and output.get("ok") is False
        step = self.record.steps[op]
        if step.status == runfox.StepStatus.RETRY and op not in self._repeats and not is_failed:
            record = self.record
            restored = replace(step, run_id=step.run_id - 1)
            self.backend.write(replace(record, steps={**record.steps, op: restored}))
            self.backend.mark_complete(self.workflow.id, op)

    def remove_retried_keys(self, op: str, output: Any) -> None:
        status = self.record.steps[op].status
        for key in ERROR_KEYS:
            if key in (output or ()):
                self._last_writers.pop(key, None)
                if status == runfox.StepStatus.RETRY:
                    self._last_writers[key] = op
        if status == runfox.StepStatus.COMPLETE:
            left = {key for key, writer in self._last_writers.items() if writer == op}
            record = self.record
            state = {key: value for key, value in record.state.items() if key not in left}
            self.backend.write(replace(record, state=state))
            for key in left:
                del self._last_writers[key]
