"""Converts flowtoy documents: `sources`, a `flow` of steps with Jinja templates, and lists of outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL, find_references
from orchestrator.application.spec.field_types import ON_ERROR
from orchestrator.application.spec.step_models import StepModel, WorkflowModel
from orchestrator.application.values.paths import Path
from orchestrator.convert.flowtoy_providers import (
    BODY_ONLY,
    TYPES,
    Provider,
    convert_input,
    convert_payload,
    is_rendered_by_executor,
    is_setting_dropped,
    move_url_to_source,
    note_relative_program,
    note_secrets,
    resolve_provider,
)
from orchestrator.convert.jinja import JinjaTranslator, ResolveVariable, convert_template, is_template
from orchestrator.convert.jmespath import convert_path
from orchestrator.convert.json_logic import Rule, convert_data
from orchestrator.convert.notes import AS_TEXT, LEFT_OUT, CannotConvert, Notes
from orchestrator.convert.step_names import StepIdAllocator
from orchestrator.convert.wrapped_results import DATA, OUTPUT, Branch, flowtoy_branches

WHOLE_RESULT = "the whole result is used"
_OLD_INPUT_KEYS = {"type", "template", "value"}
_DOCUMENT_KEYS = frozenset(WorkflowModel.key_names()) - {"flow", "steps"}
_STEP_KEYS = frozenset(StepModel.key_names())
_OUR_OWN_RESULTS = frozenset({"branch", "map", "loop", "workflow"})
"""Keys of ours that handle the result of a step in their own way."""


def convert_flowtoy(data: dict[str, Any], notes: Notes) -> dict[str, Any]:
    return _Conversion(data, notes).convert()


class _Conversion:
    def __init__(self, data: dict[str, Any], notes: Notes) -> None:
        self._data, self._notes = data, notes
        self._key = "flow" if "flow" in data else "steps"
        sources = data.get("sources")
        self._sources: dict[str, Any] = sources if isinstance(sources, dict) else {}
        flow = data.get(self._key)
        self._flow: list[Any] = flow if isinstance(flow, list) else []
        if flow is not None and not isinstance(flow, list):
            notes.add_lost((self._key,), "is not a list of steps", LEFT_OUT)
        self._names = [_first_text(step, "name", "id", "op") for step in self._flow]
        allocator = StepIdAllocator()
        self._ids = {
            name: allocator.allocate(name) for name in dict.fromkeys(self._names) if name is not None
        }
        self._has_noted_payload = False
        self._outputs: dict[str, Rule] = {}
        self._assumed_sources: dict[str, list[str]] = {}

    def convert(self) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for key, value in self._data.items():
            if key == self._key:
                document["steps"] = self._convert_steps()
            elif key == "sources":
                document["sources"] = {
                    name: self._convert_definition(source, ("sources", name))
                    for name, source in self._sources.items()
                }
            elif key == "runner" and isinstance(value, dict):
                document["runner"] = self._convert_runner(value)
            elif key in _DOCUMENT_KEYS or key.startswith("x-"):
                document[key] = value
            else:
                self._notes.add_lost((key,), "flowtoy ignores this key", LEFT_OUT)
        if self._assumed_sources:
            assumed = {
                name: {"type": "env", "configuration": {"vars": variables}}
                for name, variables in self._assumed_sources.items()
            }
            document["sources"] = {**document.get("sources", {}), **assumed}
        if self._outputs and "outputs" not in document:
            document["outputs"] = self._outputs
        return document

    def _convert_runner(self, runner: dict[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, value in runner.items():
            if key == "on_error":
                kept |= self._convert_policy(value, ("runner", key))
            elif key == "max_workers":
                kept[key] = value
            else:
                self._notes.add_lost(("runner", key), "the runner has no such setting here", LEFT_OUT)
        return kept

    def _convert_policy(self, value: Any, path: Path) -> dict[str, Any]:
        if isinstance(value, str) and value.lower() in ON_ERROR:
            return {"on_error": value.lower()}
        if value:
            self._notes.add_lost(path, "is not fail, skip or continue, so flowtoy uses fail", "fail is used")
        return {"on_error": "fail"} if value else {}

    # Steps

    def _convert_steps(self) -> list[dict[str, Any]]:
        last = {name: n for n, name in enumerate(self._names)}
        steps = []
        for n, (name, raw) in enumerate(zip(self._names, self._flow, strict=True)):
            path: Path = (self._key, n)
            if name is None:
                self._notes.add_lost(path, "flowtoy does not run a step without a name", LEFT_OUT)
            elif last[name] != n:
                self._notes.add_lost(
                    path, f"flowtoy runs only the last step with the name {name!r}", LEFT_OUT
                )
            else:
                steps.append(self._convert_step(raw, name, path))
        return steps

    def _convert_step(self, raw: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
        step: dict[str, Any] = {"id": self._ids[name]}
        if step["id"] != name:
            step["name"] = name
            self._notes.add_changed((*path, "name"), f"{name!r} is not a valid id", f"the id is {step['id']}")
        provider = resolve_provider(raw.get("source"), self._sources)
        is_wrapped = provider.may_wrap_results and _OUR_OWN_RESULTS.isdisjoint(raw)
        for key, value in raw.items():
            is_identity = key == "name" or (key == "id" and value == name)
            if value is not None and not is_identity:
                step |= self._convert_field(key, value, (*path, key), provider)
        move_url_to_source(step, provider, path, self._notes)
        if "output" in step:  # flowtoy prints these at the end
            self._outputs[name] = {"var": f"steps.{step['id']}.output"}
        outputs = raw.get("output") or []
        if is_wrapped and isinstance(outputs, list):
            step.pop("output", None)
            step["branch"] = self._unwrap_result(outputs, (*path, "output"))
        if missing := self._find_missing_parents(raw.get("input"), step):
            step["depends_on"] = [*step.get("depends_on", ()), *missing]
        return step

    def _find_missing_parents(self, inputs: Any, step: dict[str, Any]) -> list[str]:
        """Return the steps that a template names, so that flowtoy waits for them, and no expression reads."""
        named = [
            name for text in _iterate_texts(inputs) if is_template(text) for name in _DEPENDENCY.findall(text)
        ]
        wanted = dict.fromkeys(self._ids[name] for name in named if name in self._ids)
        known = {step["id"], *step.get("depends_on", ())}
        for reference in find_references(step.get("input")):
            segments = reference.segments
            known.update(".".join(segments[: n + 1]) for n in range(len(segments)))
        return [name for name in wanted if name not in known]

    def _convert_field(self, key: str, value: Any, path: Path, provider: Provider) -> dict[str, Any]:
        match key:
            case "source":
                return {key: self._convert_source(value, path, provider)}
            case "input":
                inputs = self._convert_input(value, path, provider)
                return {key: inputs} if inputs else {}
            case "output":
                return self._convert_output(value, path, provider)
            case "on_error":
                return self._convert_policy(value, path)
            case "depends_on" if isinstance(value, list):
                return {key: [self._ids.get(item, item) for item in value if isinstance(item, str)]}
        if key.startswith("x-") or (key in _STEP_KEYS and key not in ("depends_on", "id")):
            return {key: value}
        self._notes.add_lost(path, "flowtoy ignores this key", LEFT_OUT)
        return {}

    # Sources

    def _convert_source(self, source: Any, path: Path, provider: Provider) -> Any:
        if isinstance(source, str):
            return source if source in self._sources else {"type": TYPES.get(source, source)}
        if not isinstance(source, dict) or "base" not in source:
            return self._convert_definition(source, path)
        converted = {"base": source["base"]}
        if isinstance(source.get("override"), dict) and source["override"]:
            override = self._convert_definition(source["override"], (*path, "override"), provider)
            converted["override"] = override
            self._note_merge(source, override, path)
        return converted

    def _note_merge(self, source: dict[str, Any], override: Any, path: Path) -> None:
        base = self._sources.get(source["base"]) if isinstance(source["base"], str) else None
        before = base.get("configuration") if isinstance(base, dict) else None
        after = override.get("configuration")
        if not isinstance(before, dict) or not isinstance(after, dict):
            return
        if kept := [key for key in before if key not in after]:
            message = "flowtoy replaces the whole configuration of the base; here the two are merged"
            self._notes.add_changed((*path, "override"), message, f"kept from the base: {', '.join(kept)}")

    def _convert_definition(self, source: Any, path: Path, provider: Provider | None = None) -> Any:
        if not isinstance(source, dict):
            return source
        provider = provider or resolve_provider(source, {})
        converted: dict[str, Any] = {}
        for key, value in source.items():
            where = (*path, key)
            if key == "type" and isinstance(value, str):
                converted[key] = TYPES.get(value, value)
            elif key == "configuration" and isinstance(value, dict):
                converted[key] = self._convert_configuration(provider, value, where)
            else:
                converted[key] = convert_data(value, where, self._notes, self._convert_setting_text)
        if source.get("type") == "rest" and isinstance(converted.get("configuration", {}), dict):
            converted["configuration"] = {**converted.get("configuration", {}), **BODY_ONLY}
        return converted

    def _convert_configuration(
        self, provider: Provider, settings: dict[str, Any], path: Path
    ) -> dict[str, Any]:
        note_secrets(provider, settings, path, self._notes)
        converted: dict[str, Any] = {}
        for name, value in settings.items():
            where = (*path, name)
            convert_text = self._convert_setting_text
            if provider.kind == "process" and name == "command":
                note_relative_program(value, where, self._notes)
                if provider.configuration.get("pass_to") == "template":
                    convert_text = self._convert_command_text
            if not is_setting_dropped(provider, name, value, where, self._notes):
                converted[name] = convert_data(value, where, self._notes, convert_text)
        return converted

    def _convert_command_text(self, text: str, path: Path, notes: Notes) -> Rule:
        return text if is_rendered_by_executor(text) else self._convert_setting_text(text, path, notes)

    def _convert_setting_text(self, text: str, path: Path, notes: Notes) -> Rule:
        if not is_template(text):
            return text
        return self._convert_template(text, path, notes, self._resolve_in_configuration)

    def _resolve_in_configuration(self, name: str, keys: list[Any]) -> tuple[Rule, list[Any]]:
        if name == "sources":
            self._require_env_source(*keys[:2])
            return {"var": "sources"}, keys
        if name == "flows":
            raise CannotConvert("a configuration cannot read the outputs of steps here: pass them as inputs")
        raise CannotConvert(f"the variable {name} does not exist here")

    def _require_env_source(self, name: Any = None, variable: Any = None) -> None:
        if isinstance(name, str) and name not in self._sources:
            if name not in self._assumed_sources:
                message = "is not defined in this document, and is assumed to be a source of type env"
                self._notes.add_changed(("sources", name), message)
            variables = self._assumed_sources.setdefault(name, [])
            if isinstance(variable, str) and variable not in variables:
                variables.append(variable)
            return
        source = self._sources[name] if isinstance(name, str) else None
        if not isinstance(source, dict) or source.get("type") != "env":
            raise CannotConvert("only sources of type env can be read here")

    # Inputs and outputs

    def _convert_input(self, value: Any, path: Path, provider: Provider) -> dict[str, Any]:
        if isinstance(value, dict):
            for key in ("template", "value"):
                is_old_form = _OLD_INPUT_KEYS.issuperset(value) and (key == "template" or "type" in value)
                if key in value and is_old_form:
                    return self._convert_payload(value[key], (*path, key), provider)
            return convert_input(provider, value, path, self._notes, self._convert_value)
        return self._convert_payload(value, path, provider)

    def _convert_payload(self, value: Any, path: Path, provider: Provider) -> dict[str, Any]:
        payload = convert_payload(provider, value, path, self._notes, self._convert_value)
        if payload and not self._has_noted_payload:
            message = "an input is a mapping here: the single value that flowtoy passes on becomes payload"
            self._notes.add_changed(path, message)
            self._has_noted_payload = True
        return payload

    def _convert_value(self, value: Any, path: Path) -> Rule:
        return convert_data(value, path, self._notes, self._convert_input_text)

    def _convert_input_text(self, text: str, path: Path, notes: Notes) -> Rule:
        return self._convert_template(text, path, notes, self._resolve_in_input)

    def _resolve_in_input(self, name: str, keys: list[Any]) -> tuple[Rule, list[Any]]:
        if name == "flows":
            if not keys:
                return {"var": "flows"}, []
            if isinstance(keys[0], str):
                return {"var": f"steps.{self._ids.get(keys[0], keys[0])}.output"}, keys[1:]
        if name == "sources":
            raise CannotConvert("an input cannot read sources here: the worker resolves them")
        raise CannotConvert(f"the variable {name} does not exist here")

    def _convert_template(self, text: str, path: Path, notes: Notes, resolve: ResolveVariable) -> Rule:
        translator = JinjaTranslator(resolve)
        try:
            rule = convert_template(text, translator)
        except CannotConvert as reason:
            notes.add_lost(path, f"this template cannot be converted: {reason}", AS_TEXT)
            return {LITERAL: text}
        for change in translator.changes:
            notes.add_changed(path, change)
        return rule

    def _convert_output(self, outputs: Any, path: Path, provider: Provider) -> dict[str, Any]:
        if not isinstance(outputs, list):
            self._notes.add_lost(path, "is not a list, which flowtoy expects", "kept unchanged")
            return {"output": outputs}
        converted = self._convert_extractions(outputs, path, provider.result)
        return {"output": converted} if converted else {}

    def _unwrap_result(self, outputs: list[Any], path: Path) -> list[Branch]:
        of_data, of_result = (self._convert_extractions(outputs, path, base) for base in (DATA, OUTPUT))
        return flowtoy_branches(of_data, of_result)

    def _convert_extractions(self, outputs: list[Any], path: Path, result: Rule) -> dict[str, Rule]:
        converted: dict[str, Rule] = {}
        for n, entry in enumerate(outputs):
            name = _first_text(entry, "name")
            if name is None:
                self._notes.add_lost((*path, n), "flowtoy ignores an output without a name", LEFT_OUT)
            else:
                converted[name] = self._convert_extraction(entry, (*path, n), result)
        return converted

    def _convert_extraction(self, entry: dict[str, Any], path: Path, result: Rule) -> Rule:
        path_text = entry.get("value", entry.get("path"))
        if entry.get("type") != "jmespath":
            if entry.get("type") not in (None, "raw", "json"):
                self._notes.add_lost((*path, "type"), "is not raw, json or jmespath", WHOLE_RESULT)
            elif path_text is not None:
                message = "flowtoy uses this only with type jmespath"
                self._notes.add_lost((*path, "value"), message, WHOLE_RESULT)
            return result
        try:
            rule, changes = convert_path(path_text if isinstance(path_text, str) else "", result)
        except CannotConvert as reason:
            message = f"this JMESPath cannot be converted: {reason}"
            self._notes.add_lost((*path, "value"), message, WHOLE_RESULT)
            return result
        for change in changes:
            self._notes.add_changed((*path, "value"), change)
        return rule


_DEPENDENCY = re.compile(r"flows\.([A-Za-z0-9_]+)\.")
"""How flowtoy itself finds the dependencies in a template."""


def _iterate_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _iterate_texts(item)


def _first_text(entry: Any, *keys: str) -> str | None:
    """Return the first value of these keys that is a non-empty text."""
    values = [entry.get(key) for key in keys] if isinstance(entry, dict) else []
    return next((value for value in values if isinstance(value, str) and value), None)
