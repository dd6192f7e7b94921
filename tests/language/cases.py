"""Cases: workflows with all that happens to them, as far as it is scripted.

case.executes(job)            # what the executor of a job brings back
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import make_failure
from worlds.documents import Json


@dataclass(frozen=True, slots=True)
class Start:
    execution_id: str
    inputs: Json
    group: str
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """What is said to a step that waits: nothing, or a signal each time; `is_early`: the first one is sent
    before anybody waits for it."""

    signal: str | None = None
    is_early: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """How the executor of a function behaves: `fails` attempts are errors before one succeeds, of a map for
    every other item; a loop says `again` so often."""

    fails: int = 0
    again: int = 0
    kind: str = "exception"


@dataclass(slots=True)
class Case:
    """`waits` are by step id, which is unique in a case, children included."""

    seed: int
    document: Json = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    registered: dict[str, Json] = field(default_factory=dict)
    waits: dict[str, Wait] = field(default_factory=dict)
    scripts: dict[str, Script] = field(default_factory=dict)
    is_quiet: bool = True

    def executes(self, job: DispatchJob) -> tuple[Json | None, Json | None]:
        """Output and error of a job: they follow from the seed, the function, the inputs and which attempt
        of which round this is."""
        script = self.scripts[job.fn]
        item = job.step_id.partition("#")[2]
        if job.attempt <= script.fails and not (item.isdigit() and int(item) % 2 == 0):
            return None, make_failure(script.kind, f"{job.fn} fails attempt {job.attempt}")
        carried = [job.inputs, job.source, job.heartbeat_s, job.timeout_s]
        asked = json.dumps([self.seed, job.fn, carried, job.attempt, job.round], sort_keys=True)
        throw = Random(asked)
        name = job.fn.removeprefix("undo_")
        output: Json = {
            f"n_{name}": throw.randint(0, 9),
            f"l_{name}": [throw.randint(0, 9) for _ in range(3)],
        }
        if not self.is_quiet:
            output |= {"shared": throw.randint(0, 9), "flag": throw.random() < 0.5}
            if throw.random() < 0.15:
                return None, make_failure("exception", f"{job.fn} fails by chance")
        if job.iteration is None:
            return output, None
        return {"_loop": "again" if job.iteration < script.again else "done", "value": output}, None

    def function(self, fn: str) -> Callable[..., Json]:
        """The executor of a function, as every backend calls it. It fails as `executes` does."""

        def execute(inputs: Json, context: Json) -> Json:
            unit = context["step"] if context["item"] is None else f"{context['step']}#{context['item']}"
            ids = {name: context[name] for name in ("run_id", "attempt", "round", "iteration")}
            output, error = self.executes(
                DispatchJob(context["workflow_execution_id"], unit, fn, inputs, **ids)
            )
            if error is not None:
                raise RuntimeError(error["message"])
            assert output is not None
            return output

        return execute

    def documents(self) -> list[Json]:
        """The document, and all below it."""
        return [*nested(self.document), *(one for named in self.registered.values() for one in nested(named))]


def nested(document: Json) -> list[Json]:
    """A document, and the children that are written inside."""
    found = [document]
    for step in document["steps"]:
        if isinstance(step.get("workflow"), dict):
            found += nested(step["workflow"])
    return found


# ---- what a case has


def features(case: Case) -> set[str]:
    """Which parts of the language a case uses."""
    found = {
        "signal early" if wait.is_early else "signal late" for wait in case.waits.values() if wait.signal
    }
    found |= {"twins"} if len(case.starts) > 1 else set()
    found |= {"group"} if any(start.group for start in case.starts) else set()
    for document in case.documents():
        found |= {key for key in ("outputs", "concurrency", "inputs") if key in document}
        found |= {"timeout of the workflow"} if "timeout" in document else set()
        found |= {f"default {key}" for key in document.get("defaults", ())}
        found |= {"max_workers"} if "runner" in document else set()
        for step in document["steps"]:
            found.update(_features_of(step))
    if any("workflow" in step for one in case.documents()[1:] for step in one["steps"]):
        found.add("child of a child")
    return found


# fmt: off
PLAIN = (
    "depends_on", "when", "filters", "required", "defer_ms", "delay", "wait", "switch", "map", "loop",
    "workflow", "retry", "max_attempts", "attempts_on", "output", "skip_output_mapping", "kv_add",
    "compensate", "priority", "queue", "tags", "heartbeat", "timeout",
)
# fmt: on


def _features_of(step: Json) -> Iterator[str]:
    yield from (key for key in PLAIN if key in step)
    yield f"on_error {step.get('on_error')}"
    if "concurrency" in step:
        yield "concurrency of a step"
    if "source" in step:
        yield "source by name" if isinstance(step["source"], str) else f"source {min(step['source'])}"
    yield from (f"retry {key}" for key in step.get("retry", ()))
    join = step.get("join", "all")
    yield f"join {join if isinstance(join, str) else type(join).__name__}"
    for branch in step.get("branch", ()):
        action = branch["action"]
        yield f"branch {'set' if isinstance(action, dict) else action}"
    if any(name.startswith("from_") for name in step.get("input", {})):
        yield "implicit reference"
    if "wait" in step:
        timeouts = [step["wait"], *step["wait"].get("any", [])]
        yield "wait with a timeout" if any("timeout" in one for one in timeouts) else "wait without one"
        yield "wait any" if "any" in step["wait"] else "wait for one signal"
    if "map" in step:
        yield f"map on_error {step.get('on_error')}"
        yield "max_parallel" if "max_parallel" in step["map"] else "map without a limit"
    if "workflow" in step:
        yield "child inline" if isinstance(step["workflow"], dict) else "child registered"
    for key in [*step.get("output", {}), *step.get("kv_add", {})]:
        if ":" in key:
            yield f"kv {key.partition(':')[0]}{' added' if key in step.get('kv_add', {}) else ''}"
