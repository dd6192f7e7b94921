"""Maps the providers of flowtoy to executors: their inputs, configurations and results.

    rest      becomes http; its result is the body of the response, which is under `value`
    process   also takes its command from an input, as in the tutorial of flowtoy
    env       takes no input

Settings that flowtoy ignores and an executor would reject are left out with a note.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.application.redaction.by_key import is_secret_key
from orchestrator.application.spec.sources import merge_configuration
from orchestrator.application.values.paths import Path
from orchestrator.convert.jmespath import RESULT
from orchestrator.convert.json_logic import Rule
from orchestrator.convert.notes import LEFT_OUT, Notes

TYPES = {"rest": "http"}
"""The providers of flowtoy that have another name here."""

_BUILT_IN = frozenset({"rest", "process", "env"})

BODY_ONLY = {"returns": "body"}
"""Makes `http` return the body only, as `rest` does. By default it returns the status and headers too."""

PAYLOAD = "payload"
"""The input that holds the single value which flowtoy passes to a provider."""

HTTP_INPUTS = frozenset({"url", "method", "headers", "query", "path", "json", "form", "body", "timeout"})
PROCESS_INPUTS = frozenset({"command", "args", "stdin", "cwd", "timeout", "environment", "pass_environment"})
NO_INPUT_MODE = "flowtoy does not send this: the source has no input_mode"
_RENDERED_BY_EXECUTOR = re.compile(r"\{\{\s*(?:raw|input|json)(?:\.\w+)*\s*\}\}")
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")

ConvertValue = Callable[[Any, Path], Rule]


@dataclass(frozen=True, slots=True)
class Provider:
    """The provider that a step calls. The configurations of a base and its override are merged."""

    kind: Any
    configuration: dict[str, Any]

    @property
    def may_wrap_results(self) -> bool:
        """Whether it is a provider of the user, who may return results as flowtoy expects them."""
        return isinstance(self.kind, str) and self.kind not in _BUILT_IN

    @property
    def result(self) -> Rule:
        """The value that the outputs of a step read."""
        return {"var": f"{RESULT['var']}.value"} if self.kind == "rest" else RESULT


def resolve_provider(source: Any, sources: dict[str, Any]) -> Provider:
    """Find the provider of a source as flowtoy does: an unknown name is a type."""
    if isinstance(source, str):
        source = sources.get(source, {"type": source})
    if not isinstance(source, dict):
        return Provider(None, {})
    if "base" not in source:
        return Provider(source.get("type"), _as_mapping(source.get("configuration")))
    base = source["base"]
    parent = resolve_provider(base, sources) if isinstance(base, str) else Provider(None, {})
    override = _as_mapping(source.get("override"))
    change = override.get("configuration", {key: value for key, value in override.items() if key != "type"})
    return Provider(
        override.get("type", parent.kind), merge_configuration(parent.configuration, _as_mapping(change))
    )


def _as_mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# ---- configurations


def is_rendered_by_executor(text: str) -> bool:
    """Whether a part of a command is a template that the executor `process` renders."""
    return not _TEMPLATE.search(_RENDERED_BY_EXECUTOR.sub("", text))


def is_setting_dropped(provider: Provider, name: str, value: Any, path: Path, notes: Notes) -> bool:
    """Whether a setting is left out because it is the only behaviour here, or has no equivalent."""
    if provider.kind != "process" or name != "template_strict":
        return False
    if value is not True:
        notes.add_lost(path, "a command template that finds no value always fails here", LEFT_OUT)
    return True


def note_secrets(provider: Provider, values: dict[str, Any], path: Path, notes: Notes) -> None:
    """Add a note for each secret that is written in the document."""
    for where in (*_find_secret_keys(values, path), *_find_redacted_arguments(provider, values, path)):
        message = "this looks like a secret, and Redis stores it with the document"
        notes.add_changed(where, message, "write {secret: NAME} instead, and give the secret to the worker")


def _find_secret_keys(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, list):
        for n, item in enumerate(value):
            yield from _find_secret_keys(item, (*path, n))
    for key, item in _as_mapping(value).items():
        if not isinstance(item, str):
            yield from _find_secret_keys(item, (*path, key))
        elif item and is_secret_key(key) and not _TEMPLATE.search(item):
            yield (*path, key)


def _find_redacted_arguments(provider: Provider, values: dict[str, Any], path: Path) -> Iterator[Path]:
    command = values.get("command")
    if provider.kind != "process" or not isinstance(command, list):
        return
    indexes, patterns = (
        _as_list(provider.configuration.get(f"redact_{kind}")) for kind in ("args", "patterns")
    )
    for n, argument in enumerate(command):
        is_hidden = n in indexes or any(isinstance(one, str) and one in str(argument) for one in patterns)
        if is_hidden and not _TEMPLATE.search(str(argument)):
            yield (*path, "command", n)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def note_relative_program(command: Any, path: Path, notes: Notes) -> None:
    """Add a note if a command is a path relative to the folder in which flowtoy runs. No worker finds it."""
    try:
        args = shlex.split(command) if isinstance(command, str) else command
    except ValueError:
        return
    program = args[0] if isinstance(args, list) and args else None
    if isinstance(program, str) and "/" in program.lstrip("/") and not program.startswith("/"):
        notes.add_lost(
            path,
            f"{program!r} is neither a name nor an absolute path: no worker runs it",
            "kept unchanged",
        )


# ---- inputs


def convert_payload(
    provider: Provider, value: Any, path: Path, notes: Notes, convert_value: ConvertValue
) -> dict[str, Rule]:
    """Convert an input that flowtoy passes to a provider as a single value."""
    if _takes_no_payload(provider, path, notes):
        return {}
    return {PAYLOAD: convert_value(value, path)}


def _takes_no_payload(provider: Provider, path: Path, notes: Notes) -> bool:
    if provider.kind == "env":
        notes.add_lost(path, "env takes no input in flowtoy", LEFT_OUT)
    elif provider.kind == "rest" and not provider.configuration.get("input_mode"):
        notes.add_lost(path, NO_INPUT_MODE, LEFT_OUT)
    else:
        return False
    return True


def convert_input(
    provider: Provider, values: dict[str, Any], path: Path, notes: Notes, convert_value: ConvertValue
) -> dict[str, Rule]:
    """Convert an input that is a mapping: settings of the step, or a single value."""
    match provider.kind:
        case "rest":
            return _convert_rest_input(provider, values, path, notes, convert_value)
        case "process":
            return _convert_process_input(provider, values, path, notes, convert_value)
        case "env":
            return convert_payload(provider, values, path, notes, convert_value)
    return {key: convert_value(value, (*path, key)) for key, value in values.items()}


def _convert_rest_input(
    provider: Provider, values: dict[str, Any], path: Path, notes: Notes, convert_value: ConvertValue
) -> dict[str, Rule]:
    mode = provider.configuration.get("input_mode")
    if mode == "parameter":
        message = "each key becomes a parameter here; flowtoy sends the keys without their values"
        notes.add_changed(path, message)
        return {"query": convert_value(values, path)}
    if mode:
        return {PAYLOAD: convert_value(values, path)}
    for key in (key for key in values if key not in HTTP_INPUTS):
        notes.add_lost((*path, key), NO_INPUT_MODE, LEFT_OUT)
    return {key: convert_value(value, (*path, key)) for key, value in values.items() if key in HTTP_INPUTS}


def _convert_process_input(
    provider: Provider, values: dict[str, Any], path: Path, notes: Notes, convert_value: ConvertValue
) -> dict[str, Rule]:
    if not PROCESS_INPUTS & values.keys():
        notes.add_changed(path, "a mapping is passed to a program as JSON here")
        return {PAYLOAD: convert_value(values, path)}
    for key in (key for key in values if key not in PROCESS_INPUTS):
        notes.add_lost((*path, key), "process has no such setting", LEFT_OUT)
    inputs = {
        key: convert_value(value, (*path, key)) for key, value in values.items() if key in PROCESS_INPUTS
    }
    if "command" not in values:
        return inputs
    note_relative_program(values["command"], (*path, "command"), notes)
    if "command" in provider.configuration:
        _add_arguments(inputs, provider.configuration["command"], (*path, "command"), notes)
    return inputs


def _add_arguments(inputs: dict[str, Rule], fixed: Any, path: Path, notes: Notes) -> None:
    """Replace `command` with `args`. The command of a source is fixed; an input can only add arguments."""
    command = inputs.pop("command")
    is_longer = isinstance(command, list) and isinstance(fixed, list) and command[: len(fixed)] == fixed
    if is_longer and "args" not in inputs:
        inputs["args"] = command[len(fixed) :]
    else:
        notes.add_lost(
            path, "the source has a command, which an input cannot change; args adds arguments", LEFT_OUT
        )


def move_url_to_source(step: dict[str, Any], provider: Provider, path: Path, notes: Notes) -> None:
    """Move the url of an input to the source, because headers of a source are sent only to its own url."""
    has_url = {"url", "base_url"} & provider.configuration.keys()
    if provider.kind != "rest" or has_url or "headers" not in provider.configuration:
        return
    inputs = _as_mapping(step.get("input"))
    if not isinstance(inputs.get("url"), str):
        if "url" in inputs:
            message = "the source has headers, which are sent only to its own url: give the source a base_url"
            notes.add_lost((*path, "input", "url"), message, "kept unchanged")
        return
    step["source"] = _set_url(step["source"], inputs.pop("url"))
    if not inputs:
        del step["input"]


def _set_url(source: Any, url: str) -> Any:
    if isinstance(source, str):
        return {"base": source, "override": {"configuration": {"url": url}}}
    if "base" not in source:
        return {**source, "configuration": {**source.get("configuration", {}), "url": url}}
    override = source.get("override", {})
    if "configuration" in override or not override:
        change = {**_as_mapping(override.get("configuration")), "url": url}
        return {**source, "override": {**override, "configuration": change}}
    return {**source, "override": {**override, "url": url}}
