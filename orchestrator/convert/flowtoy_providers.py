"""flowtoy's providers as executors of ours: what a step may give them, and what they give back.

    rest      is http here; its result is the content of an answer, which stands under `value`
    process   takes its command from an input too, as flowtoy's tutorial has it
    env       takes no input

What an executor would refuse, though flowtoy passes over it, is told here.
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
"""What flowtoy calls a provider and we call otherwise."""

BODY_ONLY = {"returns": "body"}
"""What flowtoy's `rest` gives is the content of an answer; our `http` gives its status and headers too."""

PAYLOAD = "payload"
"""The input of a step that flowtoy gives its provider as one value."""

HTTP_INPUTS = frozenset({"url", "method", "headers", "query", "path", "json", "form", "body", "timeout"})
PROCESS_INPUTS = frozenset({"command", "args", "stdin", "cwd", "timeout", "environment", "pass_environment"})
NO_INPUT_MODE = "flowtoy sends this nowhere: the source has no input_mode"
_RENDERED_LATER = re.compile(r"\{\{\s*(?:raw|input|json)(?:\.\w+)*\s*\}\}")
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")

ConvertValue = Callable[[Any, Path], Rule]


@dataclass(frozen=True, slots=True)
class Provider:
    """What a step calls, by flowtoy's names; the configurations of a base and its override are merged."""

    kind: Any
    configuration: dict[str, Any]

    @property
    def result(self) -> Rule:
        """Where flowtoy's outputs begin to read."""
        return {"var": f"{RESULT['var']}.value"} if self.kind == "rest" else RESULT


def resolve_provider(source: Any, sources: dict[str, Any]) -> Provider:
    """As flowtoy finds it: an unknown name is a type."""
    if isinstance(source, str):
        source = sources.get(source, {"type": source})
    if not isinstance(source, dict):
        return Provider(None, {})
    if "base" not in source:
        return Provider(source.get("type"), _mapping(source.get("configuration")))
    base = source["base"]
    below = resolve_provider(base, sources) if isinstance(base, str) else Provider(None, {})
    override = _mapping(source.get("override"))
    change = override.get("configuration", {key: one for key, one in override.items() if key != "type"})
    return Provider(
        override.get("type", below.kind), merge_configuration(below.configuration, _mapping(change))
    )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# ---- configurations


def is_rendered_by_executor(text: str) -> bool:
    """Whether a part of a command is a template that the executor `process` itself fills in."""
    return not _TEMPLATE.search(_RENDERED_LATER.sub("", text))


def is_setting_dropped(provider: Provider, name: str, value: Any, path: Path, notes: Notes) -> bool:
    """Whether nothing is left of a setting, because it says what holds here anyway, or cannot be said."""
    if provider.kind != "process" or name != "template_strict":
        return False
    if value is not True:
        notes.add_lost(path, "a template of a command that finds nothing is always refused here", LEFT_OUT)
    return True


def note_secrets(provider: Provider, given: dict[str, Any], path: Path, notes: Notes) -> None:
    """What is not to be shown, and stands in the document."""
    for where in (*_named_secrets(given, path), *_redacted_arguments(provider, given, path)):
        message = "this looks like a secret, and Redis keeps it with the document"
        notes.add_changed(where, message, "write {secret: NAME} there, and give it to the worker")


def _named_secrets(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, list):
        for n, item in enumerate(value):
            yield from _named_secrets(item, (*path, n))
    for key, item in _mapping(value).items():
        if not isinstance(item, str):
            yield from _named_secrets(item, (*path, key))
        elif item and is_secret_key(key) and not _TEMPLATE.search(item):
            yield (*path, key)


def _redacted_arguments(provider: Provider, given: dict[str, Any], path: Path) -> Iterator[Path]:
    command = given.get("command")
    if provider.kind != "process" or not isinstance(command, list):
        return
    indexes, patterns = (_items(provider.configuration.get(f"redact_{one}")) for one in ("args", "patterns"))
    for n, word in enumerate(command):
        is_hidden = n in indexes or any(isinstance(one, str) and one in str(word) for one in patterns)
        if is_hidden and not _TEMPLATE.search(str(word)):
            yield (*path, "command", n)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def note_relative_program(command: Any, path: Path, notes: Notes) -> None:
    """A program that lies where flowtoy is started is found by nobody here."""
    try:
        words = shlex.split(command) if isinstance(command, str) else command
    except ValueError:
        return
    program = words[0] if isinstance(words, list) and words else None
    if isinstance(program, str) and "/" in program.lstrip("/") and not program.startswith("/"):
        notes.add_lost(
            path, f"{program!r} is no name and no absolute path: no worker runs it", "left as it is"
        )


# ---- inputs


def convert_payload(
    provider: Provider, value: Any, path: Path, notes: Notes, convert_value: ConvertValue
) -> dict[str, Rule]:
    """What flowtoy gives a provider as a whole."""
    if _takes_no_payload(provider, path, notes):
        return {}
    return {PAYLOAD: convert_value(value, path)}


def _takes_no_payload(provider: Provider, path: Path, notes: Notes) -> bool:
    if provider.kind == "env":
        notes.add_lost(path, "flowtoy's env takes no input", LEFT_OUT)
    elif provider.kind == "rest" and not provider.configuration.get("input_mode"):
        notes.add_lost(path, NO_INPUT_MODE, LEFT_OUT)
    else:
        return False
    return True


def convert_input(
    provider: Provider, given: dict[str, Any], path: Path, notes: Notes, convert_value: ConvertValue
) -> dict[str, Rule]:
    """What a step gives as a mapping: settings of its own, or one value."""
    match provider.kind:
        case "rest":
            return _of_rest(provider, given, path, notes, convert_value)
        case "process":
            return _of_process(provider, given, path, notes, convert_value)
        case "env":
            return convert_payload(provider, given, path, notes, convert_value)
    return {key: convert_value(value, (*path, key)) for key, value in given.items()}


def _of_rest(
    provider: Provider, given: dict[str, Any], path: Path, notes: Notes, convert_value: ConvertValue
) -> dict[str, Rule]:
    mode = provider.configuration.get("input_mode")
    if mode == "parameter":
        message = "each key is a parameter of its own here; flowtoy sends the keys without their values"
        notes.add_changed(path, message)
        return {"query": convert_value(given, path)}
    if mode:
        return {PAYLOAD: convert_value(given, path)}
    for key in (key for key in given if key not in HTTP_INPUTS):
        notes.add_lost((*path, key), NO_INPUT_MODE, LEFT_OUT)
    return {key: convert_value(value, (*path, key)) for key, value in given.items() if key in HTTP_INPUTS}


def _of_process(
    provider: Provider, given: dict[str, Any], path: Path, notes: Notes, convert_value: ConvertValue
) -> dict[str, Rule]:
    if not PROCESS_INPUTS & given.keys():
        notes.add_changed(path, "a mapping is given to a program as JSON here")
        return {PAYLOAD: convert_value(given, path)}
    for key in (key for key in given if key not in PROCESS_INPUTS):
        notes.add_lost((*path, key), "a program takes no such setting", LEFT_OUT)
    made = {key: convert_value(value, (*path, key)) for key, value in given.items() if key in PROCESS_INPUTS}
    if "command" not in given:
        return made
    note_relative_program(given["command"], (*path, "command"), notes)
    if "command" in provider.configuration:
        _add_arguments(made, provider.configuration["command"], (*path, "command"), notes)
    return made


def _add_arguments(made: dict[str, Rule], fixed: Any, path: Path, notes: Notes) -> None:
    """The program of a source is fixed: an input can only say its further arguments."""
    command = made.pop("command")
    is_longer = isinstance(command, list) and isinstance(fixed, list) and command[: len(fixed)] == fixed
    if is_longer and "args" not in made:
        made["args"] = command[len(fixed) :]
    else:
        notes.add_lost(
            path, "the source has a command, which an input cannot change; args adds to it", LEFT_OUT
        )


def move_url_to_source(step: dict[str, Any], provider: Provider, path: Path, notes: Notes) -> None:
    """Headers of a source are sent nowhere but where the source itself says."""
    is_told = {"url", "base_url"} & provider.configuration.keys()
    if provider.kind != "rest" or is_told or "headers" not in provider.configuration:
        return
    given = _mapping(step.get("input"))
    if not isinstance(given.get("url"), str):
        if "url" in given:
            message = "the source has headers, which go only where the source says: give it a base_url"
            notes.add_lost((*path, "input", "url"), message, "left as it is")
        return
    step["source"] = _with_url(step["source"], given.pop("url"))
    if not given:
        del step["input"]


def _with_url(source: Any, url: str) -> Any:
    if isinstance(source, str):
        return {"base": source, "override": {"configuration": {"url": url}}}
    if "base" not in source:
        return {**source, "configuration": {**source.get("configuration", {}), "url": url}}
    override = source.get("override", {})
    if "configuration" in override or not override:
        change = {**_mapping(override.get("configuration")), "url": url}
        return {**source, "override": {**override, "configuration": change}}
    return {**source, "override": {**override, "url": url}}
