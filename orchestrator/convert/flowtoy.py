"""flowtoy's documents: `sources`, a `flow` of steps, Jinja in inputs and configurations, lists of outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL, references
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
from orchestrator.convert.jinja import JinjaTranslator, convert_template, is_template
from orchestrator.convert.jmespath import convert_path
from orchestrator.convert.json_logic import Rule, convert_data
from orchestrator.convert.notes import AS_TEXT, LEFT_OUT, CannotConvert, Notes
from orchestrator.convert.step_names import StepIdAllocator

WHOLE_RESULT = "the whole result is taken"
_OLDER_INPUTS = {"type", "template", "value"}
_DOCUMENT_KEYS = frozenset(WorkflowModel.key_names()) - {"flow", "steps"}
_STEP_KEYS = frozenset(StepModel.key_names())


def convert_flowtoy(data: dict[str, Any], notes: Notes) -> dict[str, Any]:
    return _Conversion(data, notes).document()


class _Conversion:
    def __init__(self, data: dict[str, Any], notes: Notes) -> None:
        self._data, self._notes = data, notes
        self._key = "flow" if "flow" in data else "steps"
        sources = data.get("sources")
        self._sources: dict[str, Any] = sources if isinstance(sources, dict) else {}
        flow = data.get(self._key)
        self._flow: list[Any] = flow if isinstance(flow, list) else []
        if flow is not None and not isinstance(flow, list):
            notes.add_lost((self._key,), "is no list of steps", LEFT_OUT)
        self._names = [_text_of(step, "name", "id", "op") for step in self._flow]
        identifiers = StepIdAllocator()
        self._ids = {name: identifiers.take(name) for name in dict.fromkeys(self._names) if name is not None}
        self._has_payload = False
        self._outputs: dict[str, Rule] = {}
        self._assumed: dict[str, list[str]] = {}

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for key, value in self._data.items():
            if key == self._key:
                document["steps"] = self._steps()
            elif key == "sources":
                document["sources"] = {
                    name: self._definition(source, ("sources", name))
                    for name, source in self._sources.items()
                }
            elif key == "runner" and isinstance(value, dict):
                document["runner"] = self._runner(value)
            elif key in _DOCUMENT_KEYS or key.startswith("x-"):
                document[key] = value
            else:
                self._notes.add_lost((key,), "flowtoy ignores this", LEFT_OUT)
        if self._assumed:
            assumed = {
                name: {"type": "env", "configuration": {"vars": variables}}
                for name, variables in self._assumed.items()
            }
            document["sources"] = {**document.get("sources", {}), **assumed}
        if self._outputs and "outputs" not in document:
            document["outputs"] = self._outputs
        return document

    def _runner(self, runner: dict[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, value in runner.items():
            if key == "on_error":
                kept |= self._policy(value, ("runner", key))
            elif key == "max_workers":
                kept[key] = value
            else:
                self._notes.add_lost(("runner", key), "the runner has no such setting here", LEFT_OUT)
        return kept

    def _policy(self, value: Any, path: Path) -> dict[str, Any]:
        if isinstance(value, str) and value.lower() in ON_ERROR:
            return {"on_error": value.lower()}
        if value:
            self._notes.add_lost(
                path, "is none of fail, skip and continue, so flowtoy takes it for fail", "fail"
            )
        return {"on_error": "fail"} if value else {}

    # Steps

    def _steps(self) -> list[dict[str, Any]]:
        last = {name: n for n, name in enumerate(self._names)}
        steps = []
        for n, (name, raw) in enumerate(zip(self._names, self._flow, strict=True)):
            path: Path = (self._key, n)
            if name is None:
                self._notes.add_lost(path, "flowtoy does not run a step without a name", LEFT_OUT)
            elif last[name] != n:
                self._notes.add_lost(path, f"flowtoy runs only the last step of the name {name!r}", LEFT_OUT)
            else:
                steps.append(self._step(raw, name, path))
        return steps

    def _step(self, raw: dict[str, Any], name: str, path: Path) -> dict[str, Any]:
        step: dict[str, Any] = {"id": self._ids[name]}
        if step["id"] != name:
            step["name"] = name
            self._notes.add_changed((*path, "name"), f"{name!r} cannot be an id", f"{step['id']} is")
        provider = resolve_provider(raw.get("source"), self._sources)
        for key, value in raw.items():
            is_identity = key == "name" or (key == "id" and value == name)
            if value is not None and not is_identity:
                step |= self._part(key, value, (*path, key), provider)
        move_url_to_source(step, provider, path, self._notes)
        if "output" in step:  # what flowtoy prints in the end
            self._outputs[name] = {"var": f"steps.{step['id']}.output"}
        if missing := self._unseen(raw.get("input"), step):
            step["depends_on"] = [*step.get("depends_on", ()), *missing]
        return step

    def _unseen(self, given: Any, step: dict[str, Any]) -> list[str]:
        """The steps that flowtoy waits for as a template names them, and that no expression reads now."""
        named = [name for text in _texts(given) if is_template(text) for name in _DEPENDENCY.findall(text)]
        wanted = dict.fromkeys(self._ids[name] for name in named if name in self._ids)
        known = {step["id"], *step.get("depends_on", ())}
        for reference in references(step.get("input")):
            segments = reference.segments
            known.update(".".join(segments[: n + 1]) for n in range(len(segments)))
        return [name for name in wanted if name not in known]

    def _part(self, key: str, value: Any, path: Path, provider: Provider) -> dict[str, Any]:
        match key:
            case "source":
                return {key: self._source(value, path, provider)}
            case "input":
                given = self._input(value, path, provider)
                return {key: given} if given else {}
            case "output":
                return self._output(value, path, provider)
            case "on_error":
                return self._policy(value, path)
            case "depends_on" if isinstance(value, list):
                return {key: [self._ids.get(item, item) for item in value if isinstance(item, str)]}
        if key.startswith("x-") or (key in _STEP_KEYS and key not in ("depends_on", "id")):
            return {key: value}
        self._notes.add_lost(path, "flowtoy ignores this", LEFT_OUT)
        return {}

    # Sources

    def _source(self, source: Any, path: Path, provider: Provider) -> Any:
        if isinstance(source, str):
            return source if source in self._sources else {"type": TYPES.get(source, source)}
        if not isinstance(source, dict) or "base" not in source:
            return self._definition(source, path)
        converted = {"base": source["base"]}
        if isinstance(source.get("override"), dict) and source["override"]:
            override = self._definition(source["override"], (*path, "override"), provider)
            converted["override"] = override
            self._tell_merge(source, override, path)
        return converted

    def _tell_merge(self, source: dict[str, Any], override: Any, path: Path) -> None:
        base = self._sources.get(source["base"]) if isinstance(source["base"], str) else None
        before = base.get("configuration") if isinstance(base, dict) else None
        after = override.get("configuration")
        if not isinstance(before, dict) or not isinstance(after, dict):
            return
        if kept := [key for key in before if key not in after]:
            message = "flowtoy replaces the whole configuration of the base; here they are merged"
            self._notes.add_changed((*path, "override"), message, f"{', '.join(kept)} of the base stay")

    def _definition(self, source: Any, path: Path, provider: Provider | None = None) -> Any:
        if not isinstance(source, dict):
            return source
        provider = provider or resolve_provider(source, {})
        converted: dict[str, Any] = {}
        for key, value in source.items():
            where = (*path, key)
            if key == "type" and isinstance(value, str):
                converted[key] = TYPES.get(value, value)
            elif key == "configuration" and isinstance(value, dict):
                converted[key] = self._configuration(provider, value, where)
            else:
                converted[key] = convert_data(value, where, self._notes, self._configured)
        if source.get("type") == "rest" and isinstance(converted.get("configuration", {}), dict):
            converted["configuration"] = {**converted.get("configuration", {}), **BODY_ONLY}
        return converted

    def _configuration(self, provider: Provider, given: dict[str, Any], path: Path) -> dict[str, Any]:
        note_secrets(provider, given, path, self._notes)
        made: dict[str, Any] = {}
        for name, value in given.items():
            where = (*path, name)
            converting = self._configured
            if provider.kind == "process" and name == "command":
                note_relative_program(value, where, self._notes)
                if provider.configuration.get("pass_to") == "template":
                    converting = self._rendered_later
            if not is_setting_dropped(provider, name, value, where, self._notes):
                made[name] = convert_data(value, where, self._notes, converting)
        return made

    def _rendered_later(self, text: str, path: Path, notes: Notes) -> Rule:
        return text if is_rendered_by_executor(text) else self._configured(text, path, notes)

    def _configured(self, text: str, path: Path, notes: Notes) -> Rule:
        return self._template(text, path, notes, self._root_of_configuration) if is_template(text) else text

    def _root_of_configuration(self, name: str, keys: list[Any]) -> tuple[Rule, list[Any]]:
        if name == "sources":
            self._check_readable(*keys[:2])
            return {"var": "sources"}, keys
        if name == "flows":
            raise CannotConvert("a configuration cannot read the outputs of steps here: give them as inputs")
        raise CannotConvert(f"there is no variable {name} here")

    def _check_readable(self, name: Any = None, variable: Any = None) -> None:
        if isinstance(name, str) and name not in self._sources:
            if name not in self._assumed:
                message = "is not in this document, and taken for a source of the type env"
                self._notes.add_changed(("sources", name), message)
            variables = self._assumed.setdefault(name, [])
            if isinstance(variable, str) and variable not in variables:
                variables.append(variable)
            return
        source = self._sources[name] if isinstance(name, str) else None
        if not isinstance(source, dict) or source.get("type") != "env":
            raise CannotConvert("only sources of the type env can be read here")

    # Inputs and outputs

    def _input(self, value: Any, path: Path, provider: Provider) -> dict[str, Any]:
        if isinstance(value, dict):
            for key in ("template", "value"):
                if (
                    key in value
                    and _OLDER_INPUTS.issuperset(value)
                    and (key == "template" or "type" in value)
                ):
                    return self._payload(value[key], (*path, key), provider)
            return convert_input(provider, value, path, self._notes, self._converting)
        return self._payload(value, path, provider)

    def _payload(self, value: Any, path: Path, provider: Provider) -> dict[str, Any]:
        made = convert_payload(provider, value, path, self._notes, self._converting)
        if made and not self._has_payload:
            message = "an input is a mapping here: what flowtoy gives a provider as a whole is its payload"
            self._notes.add_changed(path, message)
            self._has_payload = True
        return made

    def _converting(self, value: Any, path: Path) -> Rule:
        return convert_data(value, path, self._notes, self._given)

    def _given(self, text: str, path: Path, notes: Notes) -> Rule:
        return self._template(text, path, notes, self._root_of_input)

    def _root_of_input(self, name: str, keys: list[Any]) -> tuple[Rule, list[Any]]:
        if name == "flows":
            if not keys:
                return {"var": "flows"}, []
            if isinstance(keys[0], str):
                return {"var": f"steps.{self._ids.get(keys[0], keys[0])}.output"}, keys[1:]
        if name == "sources":
            raise CannotConvert("an input cannot read sources here: they are resolved where the step runs")
        raise CannotConvert(f"there is no variable {name} here")

    def _template(self, text: str, path: Path, notes: Notes, root: Any) -> Rule:
        translator = JinjaTranslator(root)
        try:
            rule = convert_template(text, translator)
        except CannotConvert as reason:
            notes.add_lost(path, f"this template cannot be converted: {reason}", AS_TEXT)
            return {LITERAL: text}
        for change in translator.changes:
            notes.add_changed(path, change)
        return rule

    def _output(self, outputs: Any, path: Path, provider: Provider) -> dict[str, Any]:
        if not isinstance(outputs, list):
            self._notes.add_lost(path, "is no list, as flowtoy's outputs are", "left as it is")
            return {"output": outputs}
        converted: dict[str, Rule] = {}
        for n, entry in enumerate(outputs):
            name = _text_of(entry, "name")
            if name is None:
                self._notes.add_lost((*path, n), "flowtoy passes over an output without a name", LEFT_OUT)
            else:
                converted[name] = self._extraction(entry, (*path, n), provider.result)
        return {"output": converted} if converted else {}

    def _extraction(self, entry: dict[str, Any], path: Path, result: Rule) -> Rule:
        written = entry.get("value", entry.get("path"))
        if entry.get("type") != "jmespath":
            if entry.get("type") not in (None, "raw", "json"):
                self._notes.add_lost((*path, "type"), "is none of raw, json and jmespath", WHOLE_RESULT)
            elif written is not None:
                message = "flowtoy uses it only with the type jmespath"
                self._notes.add_lost((*path, "value"), message, WHOLE_RESULT)
            return result
        try:
            rule, changes = convert_path(written if isinstance(written, str) else "", result)
        except CannotConvert as reason:
            message = f"this JMESPath cannot be converted: {reason}"
            self._notes.add_lost((*path, "value"), message, WHOLE_RESULT)
            return result
        for change in changes:
            self._notes.add_changed((*path, "value"), change)
        return rule


_DEPENDENCY = re.compile(r"flows\.([A-Za-z0-9_]+)\.")
"""flowtoy's own rule."""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _text_of(entry: Any, *keys: str) -> str | None:
    """The first of these keys that is a text."""
    values = [entry.get(key) for key in keys] if isinstance(entry, dict) else []
    return next((value for value in values if isinstance(value, str) and value), None)
