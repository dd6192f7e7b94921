"""WorkflowBuilder: a workflow written in Python, call by call, in the order in which its steps are declared.

It holds nothing but the document that it writes, so `to_yaml()` and `from_yaml()` undo each other, and a
document that was read keeps what nobody here understands. What is wrong with a single call is said by that
call, an InvalidSpec that names the step; what only the whole can show, such as a cycle, is said by `load()`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.spec.document import check_data, read_document
from orchestrator.application.spec.model import ID_RULE, LoadedSpec, OnMax, OnTimeout, is_id
from orchestrator.application.spec.report import kind
from orchestrator.application.spec.validation import check_spec
from orchestrator.application.spec.yaml_writer import render_yaml
from orchestrator.application.values.paths import Path
from orchestrator.builder import document as writing
from orchestrator.builder.document import FieldWriter, build_step_identity, drop_none
from orchestrator.builder.errors import (
    add_suggestion,
    check_arguments,
    check_header,
    check_step,
    find_step_name,
    locate_problems,
    name_steps_in_problems,
    suggest,
)
from orchestrator.builder.expressions import (
    Expr,
    Origin,
    Reference,
    Step,
    Value,
    copy_data,
    render,
    spec_error,
)
from orchestrator.builder.keyword_arguments import (
    AnySource,
    Duration,
    Input,
    JobKeys,
    Loop,
    Source,
    StepKeys,
    StepNames,
    Values,
    WorkflowKeys,
    WorkKeys,
)


class WorkflowBuilder:
    """A workflow that grows by its methods; each one that adds a step gives a handle on it."""

    def __init__(self, name: str | None = None, **keys: Unpack[WorkflowKeys]) -> None:
        self._document: dict[str, Any] = {} if name is None else {"name": name}
        self._steps_key = "steps"
        self._known: dict[str, Step] = {}
        check_arguments("WorkflowBuilder", keys, WorkflowKeys)
        self._document |= writing.write(keys, writing.WORKFLOW_WRITERS, self)
        check_header(self._document)
        self._document["steps"] = []

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """A builder that has this document and can add to it. It is not checked beyond being JSON."""
        builder = cls()
        if problems := check_data(dict(document)):
            raise InvalidSpec(problems)
        builder._document = copy_data(document)
        builder._steps_key = "flow" if "flow" in builder._document else "steps"
        steps = builder._document.get(builder._steps_key)
        for raw in steps if isinstance(steps, list) else ():
            step_id = find_step_name(raw)
            if step_id is not None:
                builder._known[step_id] = Step(step_id, builder)
        return builder

    @classmethod
    def from_yaml(cls, text: str, source: str | None = None) -> Self:
        """The same from a text, YAML or JSON; `source` is the name of its file, for messages."""
        document = read_document(text, source).data
        if not isinstance(document, dict):
            message = f"a workflow must be a mapping with steps, not {kind(document)}"
            raise InvalidSpec([Problem("", "bad_type", message)], source)
        return cls.from_document(document)

    # ---- what goes in

    def input(self, name: str, **keys: Unpack[Input]) -> Reference:
        """Declare an input, and refer to it."""
        check_arguments("input", keys, Input)
        found = Reference(("input",), frozenset({Origin(f"the input {name!r}", self)}))[name]
        self._declare("inputs", name, keys, writing.data)
        return found

    def source(self, name: str, type: str, configuration: Values | None = None) -> Source:
        """Declare what steps can call by its name."""
        definition = drop_none(type=type, configuration=configuration)
        self._declare("sources", name, definition, writing.source)
        return Source(name, self)

    def outputs(self, values: Values | None = None, /, **named: Value) -> None:
        """The outcome of the workflow, by name; a further call adds to it."""
        for name, value in {**(values or {}), **named}.items():
            self._declare("outputs", name, value, render)

    # ---- steps

    def step(
        self, id: str, *, fn: str | None = None, source: AnySource | None = None, **keys: Unpack[JobKeys]
    ) -> Step:
        """A step with an executor, `fn` or a source; without either, its own name is the executor's too."""
        return self._add("step", JobKeys, id, build_step_identity(id, fn, source), keys)

    def map(
        self,
        id: str,
        *,
        over: Expr | Sequence[Value],
        fn: str | None = None,
        source: AnySource | None = None,
        as_: str | None = None,
        max_parallel: int | None = None,
        loop: Loop | None = None,
        **keys: Unpack[JobKeys],
    ) -> Step:
        """A job for each item of a list. Its output has `items`, `count` and `errors`.

        `input` and `output` are for one item: they see `item`, or what `as_` calls it, and `index`.
        """
        items = {"over": over, **drop_none(**{"as": as_}, max_parallel=max_parallel)}
        own = {**build_step_identity(id, fn, source), "map": items, **drop_none(loop=loop)}
        return self._add("map", JobKeys, id, own, keys)

    def loop(
        self,
        id: str,
        *,
        fn: str | None = None,
        source: AnySource | None = None,
        max_iterations: int | None = None,
        on_max: OnMax | None = None,
        **keys: Unpack[JobKeys],
    ) -> Step:
        """A step that is repeated until its executor is done. `ctx.loop` has `value` and `iteration`."""
        rounds = drop_none(max_iterations=max_iterations, on_max=on_max)
        return self._add("loop", JobKeys, id, {**build_step_identity(id, fn, source), "loop": rounds}, keys)

    def wait(
        self,
        id: str,
        *,
        signal: str,
        timeout: Duration | None = None,
        on_timeout: OnTimeout | None = None,
        **keys: Unpack[StepKeys],
    ) -> Step:
        """Waits for a signal, whose payload is its output."""
        wait = drop_none(signal=signal, timeout=timeout, on_timeout=on_timeout)
        return self._add("wait", StepKeys, id, {"id": id, "wait": wait}, keys)

    def wait_any(
        self, id: str, *, signals: Sequence[str], timeout: Duration | None = None, **keys: Unpack[StepKeys]
    ) -> Step:
        """Waits for the first of several signals; `event` in its output says which, or "timeout"."""
        events: list[dict[str, Any]] = [{"signal": signal} for signal in signals]
        if timeout is not None:
            events.append({"timeout": timeout})
        return self._add("wait_any", StepKeys, id, {"id": id, "wait": {"any": events}}, keys)

    def delay(self, id: str, duration: Duration, **keys: Unpack[StepKeys]) -> Step:
        """Completes when the time has passed."""
        return self._add("delay", StepKeys, id, {"id": id, "delay": duration}, keys)

    def switch(
        self,
        id: str,
        *,
        on: Expr,
        cases: Mapping[str, StepNames],
        default: StepNames | None = None,
        **keys: Unpack[StepKeys],
    ) -> Step:
        """Chooses which of the listed steps go on. They depend on it; one that is declared later is named."""
        switch = {"on": on, "cases": cases, **drop_none(default=default)}
        return self._add("switch", StepKeys, id, {"id": id, "switch": switch}, keys)

    def child(
        self, id: str, workflow: WorkflowBuilder | Mapping[str, Any] | str, **keys: Unpack[WorkKeys]
    ) -> Step:
        """Another workflow as a step: a builder or a document as it is now, or a registered name."""
        written = workflow.to_dict() if isinstance(workflow, WorkflowBuilder) else workflow
        return self._add("child", WorkKeys, id, {"id": id, "workflow": written}, keys)

    def __getitem__(self, step_id: str) -> Step:
        """The step of that name."""
        if step_id not in self._known:
            raise KeyError(add_suggestion(f"there is no step {step_id!r}", step_id, self._known))
        return self._known[step_id]

    # ---- what comes out

    def to_dict(self) -> dict[str, Any]:
        """The document: a copy, the caller's own."""
        document: dict[str, Any] = copy_data(self._document)
        return document

    def to_yaml(self) -> str:
        return render_yaml(self._document)

    def load(self) -> LoadedSpec:
        """The checked spec; InvalidSpec with all problems, each with the name of its step."""
        document = self.to_dict()
        try:
            return check_spec(document)
        except InvalidSpec as invalid:
            raise name_steps_in_problems(invalid, document) from None

    def __repr__(self) -> str:
        name = self._document.get("name")
        return f"<WorkflowBuilder {name!r} with {len(self._known)} steps>"

    # ---- within

    def _add(
        self, method: str, arguments: type, step_id: str, own: Mapping[str, Any], keys: Mapping[str, Any]
    ) -> Step:
        check_arguments(method, keys, arguments)
        steps = self._section(self._steps_key, [])
        path: Path = (self._steps_key, len(steps))
        try:
            self._check_name(step_id, steps)
            raw = writing.write(own, writing.STEP_WRITERS, self)
            for key, value in keys.items():
                raw |= self._written(key, value, step_id)
            check_step(raw, path)
        except InvalidSpec as invalid:
            raise locate_problems(invalid, path, step_id) from None
        steps.append(raw)
        self._known[step_id] = Step(step_id, self)
        return self._known[step_id]

    def _written(self, key: str, value: Any, step_id: str) -> dict[str, Any]:
        if key == "branch":
            return {"branch": writing.branches(value, self, step_id)}
        if key != "after":
            return writing.write({key: value}, writing.STEP_WRITERS, self)
        names = writing.step_names(value, self)
        for name in names:
            if name not in self._known:
                message = f"there is no step {name!r} before it"
                raise spec_error("unknown_dependency", message, suggest(name, self._known))
        return {"depends_on": names}

    def _check_name(self, step_id: str, steps: Sequence[Any]) -> None:
        if not isinstance(step_id, str):
            raise TypeError(f"the name of a step is a text, not {step_id!r}")
        if not is_id(step_id):
            raise spec_error("bad_id", f"the name of a step {ID_RULE}")
        if step_id in self._known:
            taken = [find_step_name(step) for step in steps].index(step_id)
            raise spec_error("duplicate_id", f"the name is already taken by {self._steps_key}[{taken}]")

    def _declare(self, section: str, name: str, value: Any, write: FieldWriter) -> None:
        try:
            written = write(value, self)
            check_header({section: {name: written}})
            declared = self._section(section, {})
            if name in declared:
                raise spec_error("duplicate_key", f"{name!r} is declared already")
        except InvalidSpec as invalid:
            raise locate_problems(invalid, (section, name)) from None
        declared[name] = written

    def _section(self, key: str, empty: Any) -> Any:
        """A collection of the document; inputs and sources that are not there yet come before the steps."""
        if key not in self._document:
            before = self._steps_key if key in ("inputs", "sources") else None
            entries = list(self._document.items())
            at = next((n for n, (name, _) in enumerate(entries) if name == before), len(entries))
            self._document = dict([*entries[:at], (key, empty), *entries[at:]])
        section = self._document[key]
        if type(section) is not type(empty):
            raise InvalidSpec([Problem(key, "bad_type", f"is {kind(section)}: nothing can be added to it")])
        return section
