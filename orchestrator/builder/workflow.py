"""WorkflowBuilder builds a workflow document in Python, one call per step.

It holds only the document that it writes. Therefore `from_yaml(to_yaml())` gives the same workflow, and a
document that was read keeps the keys that the builder does not know. A call with an error raises InvalidSpec,
which names the step. `load()` finds errors of the whole document, such as a cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.spec.document import check_data, read_document
from orchestrator.application.spec.model import ID_RULE, LoadedSpec, OnMax, OnTimeout, is_id
from orchestrator.application.spec.validation import check_spec
from orchestrator.application.spec.yaml_writer import render_yaml
from orchestrator.application.values.json_types import describe_value
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
    StepName,
    StepNames,
    Values,
    WorkflowKeys,
    WorkKeys,
)


class WorkflowBuilder:
    """Adds inputs, sources, steps and outputs. Each method that adds a step returns it."""

    def __init__(self, name: str | None = None, **keys: Unpack[WorkflowKeys]) -> None:
        self._document: dict[str, Any] = {} if name is None else {"name": name}
        self._steps_key = "steps"
        self._steps: dict[str, Step] = {}
        check_arguments("WorkflowBuilder", keys, WorkflowKeys)
        self._document |= writing.write_fields(keys, writing.WORKFLOW_WRITERS, self)
        check_header(self._document)
        self._document["steps"] = []

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Create a builder from a document, to add to it. The document must be JSON; it is not validated."""
        builder = cls()
        if problems := check_data(dict(document)):
            raise InvalidSpec(problems)
        builder._document = copy_data(document)
        builder._steps_key = "flow" if "flow" in builder._document else "steps"
        steps = builder._document.get(builder._steps_key)
        for raw in steps if isinstance(steps, list) else ():
            step_id = find_step_name(raw)
            if step_id is not None:
                builder._steps[step_id] = Step(step_id, builder)
        return builder

    @classmethod
    def from_yaml(cls, text: str, source: str | None = None) -> Self:
        """Create a builder from YAML or JSON. `source` is the file name for error messages."""
        document = read_document(text, source).data
        if not isinstance(document, dict):
            message = f"a workflow must be a mapping with steps, not {describe_value(document)}"
            raise InvalidSpec([Problem("", "bad_type", message)], source)
        return cls.from_document(document)

    # ---- inputs, sources and outputs

    def input(self, name: str, **keys: Unpack[Input]) -> Reference:
        """Declare an input and return a reference to it."""
        check_arguments("input", keys, Input)
        reference = Reference(("input",), frozenset({Origin(f"the input {name!r}", self)}))[name]
        self._declare("inputs", name, keys, writing.write_data)
        return reference

    def source(self, name: str, type: str, configuration: Values | None = None) -> Source:
        """Declare a source that steps can call by its name."""
        definition = drop_none(type=type, configuration=configuration)
        self._declare("sources", name, definition, writing.write_source_definition)
        return Source(name, self)

    def outputs(self, values: Values | None = None, /, **named: Value) -> None:
        """Declare values of the outcome by name. Further calls add more."""
        for name, value in {**(values or {}), **named}.items():
            self._declare("outputs", name, value, render)

    # ---- steps

    def step(
        self, id: str, *, fn: str | None = None, source: AnySource | None = None, **keys: Unpack[JobKeys]
    ) -> Step:
        """Add a step that runs the executor `fn` or a source, or the executor with the name of the step."""
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
        """Add a step with one job for each item of a list. Its output has `items`, `count` and `errors`.

        `input` and `output` are for one item: they read `item`, or the name in `as_`, and `index`.
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
        """Add a step that repeats until its executor is done. `ctx.loop` has `value` and `iteration`."""
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
        """Add a step that waits for a signal. The payload of the signal is its output."""
        wait = drop_none(signal=signal, timeout=timeout, on_timeout=on_timeout)
        return self._add("wait", StepKeys, id, {"id": id, "wait": wait}, keys)

    def wait_any(
        self, id: str, *, signals: Sequence[str], timeout: Duration | None = None, **keys: Unpack[StepKeys]
    ) -> Step:
        """Add a step that waits for one of several signals. Its output `event` is the name or "timeout"."""
        events: list[dict[str, Any]] = [{"signal": signal} for signal in signals]
        if timeout is not None:
            events.append({"timeout": timeout})
        return self._add("wait_any", StepKeys, id, {"id": id, "wait": {"any": events}}, keys)

    def delay(self, id: str, duration: Duration, **keys: Unpack[StepKeys]) -> Step:
        """Add a step that completes after this duration."""
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
        """Add a step that chooses which of the listed steps run. Pass steps that come later by name."""
        switch = {"on": on, "cases": cases, **drop_none(default=default)}
        return self._add("switch", StepKeys, id, {"id": id, "switch": switch}, keys)

    def child(
        self, id: str, workflow: WorkflowBuilder | Mapping[str, Any] | str, **keys: Unpack[WorkKeys]
    ) -> Step:
        """Add another workflow as a step: a copy of a builder or document, or a registered name."""
        written = workflow.to_dict() if isinstance(workflow, WorkflowBuilder) else workflow
        return self._add("child", WorkKeys, id, {"id": id, "workflow": written}, keys)

    def move(self, step: StepName, *, before: StepName) -> None:
        """Move a step in the document, before another one."""
        steps = self._section(self._steps_key, [])
        names = [find_step_name(one) for one in steps]
        moved = steps.pop(names.index(writing.write_step_name(step, self)))
        names.remove(find_step_name(moved))
        steps.insert(names.index(writing.write_step_name(before, self)), moved)

    def __getitem__(self, step_id: str) -> Step:
        """Return the step with this name."""
        if step_id not in self._steps:
            raise KeyError(add_suggestion(f"there is no step {step_id!r}", step_id, self._steps))
        return self._steps[step_id]

    # ---- results

    def to_dict(self) -> dict[str, Any]:
        """Return a copy of the document."""
        document: dict[str, Any] = copy_data(self._document)
        return document

    def to_yaml(self) -> str:
        return render_yaml(self._document)

    def load(self) -> LoadedSpec:
        """Return the checked spec, or raise InvalidSpec with all problems and the names of their steps."""
        document = self.to_dict()
        try:
            return check_spec(document)
        except InvalidSpec as invalid:
            raise name_steps_in_problems(invalid, document) from None

    def __repr__(self) -> str:
        name = self._document.get("name")
        return f"<WorkflowBuilder {name!r} with {len(self._steps)} steps>"

    # ---- internals

    def _add(
        self, method: str, arguments: type, step_id: str, own: Mapping[str, Any], keys: Mapping[str, Any]
    ) -> Step:
        check_arguments(method, keys, arguments)
        steps = self._section(self._steps_key, [])
        path: Path = (self._steps_key, len(steps))
        try:
            self._check_name(step_id, steps)
            raw = writing.write_fields(own, writing.STEP_WRITERS, self)
            for key, value in keys.items():
                raw |= self._write_field(key, value, step_id)
            check_step(raw, path)
        except InvalidSpec as invalid:
            raise locate_problems(invalid, path, step_id) from None
        steps.append(raw)
        self._steps[step_id] = Step(step_id, self)
        return self._steps[step_id]

    def _write_field(self, key: str, value: Any, step_id: str) -> dict[str, Any]:
        if key == "branch":
            return {"branch": writing.write_branches(value, self, step_id)}
        if key != "after":
            return writing.write_fields({key: value}, writing.STEP_WRITERS, self)
        names = writing.write_step_names(value, self)
        for name in names:
            if name not in self._steps:
                message = f"no step {name!r} is declared before it"
                raise spec_error("unknown_dependency", message, suggest(name, self._steps))
        return {"depends_on": names}

    def _check_name(self, step_id: str, steps: Sequence[Any]) -> None:
        if not isinstance(step_id, str):
            raise TypeError(f"the name of a step must be a string, not {step_id!r}")
        if not is_id(step_id):
            raise spec_error("bad_id", f"the name of a step {ID_RULE}")
        if step_id in self._steps:
            taken = [find_step_name(step) for step in steps].index(step_id)
            raise spec_error("duplicate_id", f"the name is already taken by {self._steps_key}[{taken}]")

    def _declare(self, section: str, name: str, value: Any, writer: FieldWriter) -> None:
        try:
            written = writer(value, self)
            check_header({section: {name: written}})
            declared = self._section(section, {})
            if name in declared:
                raise spec_error("duplicate_key", f"{name!r} is already declared")
        except InvalidSpec as invalid:
            raise locate_problems(invalid, (section, name)) from None
        declared[name] = written

    def _section(self, key: str, empty: Any) -> Any:
        """Return a collection of the document. New inputs and sources are inserted before the steps."""
        if key not in self._document:
            before = self._steps_key if key in ("inputs", "sources") else None
            entries = list(self._document.items())
            at = next((n for n, (name, _) in enumerate(entries) if name == before), len(entries))
            self._document = dict([*entries[:at], (key, empty), *entries[at:]])
        section = self._document[key]
        if type(section) is not type(empty):
            raise InvalidSpec(
                [Problem(key, "bad_type", f"is {describe_value(section)}, so nothing can be added to it")]
            )
        return section
