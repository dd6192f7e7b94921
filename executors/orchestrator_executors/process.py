"""Runs a program: the executor `process`. There is never a shell.

    ORCHESTRATOR_PROCESS_COMMANDS   the programs that may be run, separated by commas: absolute paths, or
                                    names that are looked up in /usr/local/bin, /usr/bin and /bin; * is any
                                    program, and so all that the user of the worker may do; unset, none
    ORCHESTRATOR_ENV_VARIABLES      the variables that it may be given, by value or from the worker
    ORCHESTRATOR_FILE_ROOT          the folder in which `cwd` lies

The program is what the document says: data of an execution becomes arguments and input of it, and nothing
else. Its environment is empty but for what is named. Everything that it starts ends with it, at the timeout,
or with the worker that is killed: `guard.py`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Literal, TypedDict, get_args

from .folders import is_under_root, open_folder, split_path
from .guarded import Command, CommandResult, run
from .settings import (
    Refused,
    check_choice,
    check_string_list,
    check_variable,
    merge_settings,
    number,
    read_allowlist,
)

__all__ = ["process"]

COMMANDS_VARIABLE = "ORCHESTRATOR_PROCESS_COMMANDS"
SEARCH_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
DEFAULT_MAX_BYTES = 262_144
MAX_STDERR_EXCERPT = 1_000
REDACTED = "<redacted>"
PassTo = Literal["arg", "stdin", "template"]
DATA_INPUTS = frozenset({"payload", "args", "stdin"})
LOADER_VARIABLES = re.compile(r"(LD|DYLD)_.*|PATH|GCONV_PATH|GLIBC_TUNABLES|LOCPATH|MALLOC_.*")
"""Variables that say what code a program loads, whichever program it is."""


class ProcessInputs(TypedDict, total=False):
    """`payload`, `args` and `stdin` are data; the rest may stand in the configuration, and must if that has
    a `command`."""

    payload: Any
    args: list[Any]
    stdin: Any
    command: list[str] | str
    pass_to: PassTo
    cwd: str
    timeout: float
    environment: dict[str, Any]
    pass_environment: list[str]
    exit_codes: list[int]
    max_bytes: int
    redact_args: list[int]
    redact_patterns: list[str]
    log_full_command: bool


class ProcessFailed(Exception):
    """The program could not be run, did not end in time, or ended with a code that is no success."""


def process(
    inputs: ProcessInputs,
    configuration: dict[str, Any],
    heartbeat: Callable[[], None],
    log: Callable[[str], None],
    cancelled: Callable[[], bool],
) -> dict[str, Any]:
    """Run `command`; the output is `{stdout, stderr, returncode, json?}`.

    Whatever it prints counts as a heartbeat. `json` is there if it printed that.
    """
    settings = _settings(configuration, inputs)
    argv = _argv(settings)
    shown = _Shown(argv, settings)
    stdin = _stdin(settings)
    codes = _exit_codes(settings)
    timeout_s = number("timeout", settings["timeout"]) if settings.get("timeout") is not None else None
    max_bytes = int(number("max_bytes", settings.get("max_bytes", DEFAULT_MAX_BYTES)))
    environment = _environment(settings)
    program = _program(argv[0])
    until = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    log(f"runs {shown.command}")
    with ExitStack() as stack:
        folder = None
        if "cwd" in settings:
            folder = stack.enter_context(open_folder(split_path(settings["cwd"])))
        command = Command([program, *argv[1:]], environment, stdin, folder)
        ended = run(
            command, max_bytes, lambda: time.monotonic() < until and not cancelled(), lambda: heartbeat()
        )
    if ended.returncode not in codes:
        in_time = f" within {timeout_s:g} s" if time.monotonic() >= until else ""
        raise ProcessFailed(f"{argv[0]} {_why(ended, in_time)}{shown.tail(ended)}")
    return _output(ended)


def _settings(configuration: Mapping[str, Any], inputs: Mapping[str, object]) -> dict[str, Any]:
    known = ProcessInputs.__annotations__.keys() - DATA_INPUTS
    if "command" in configuration:
        for name in inputs:
            if name in known:
                raise Refused(f"{name!r} belongs into the configuration, where the command is")
    return merge_settings(configuration, inputs, known, DATA_INPUTS)


# ---- what is run


def _argv(settings: Mapping[str, Any]) -> list[str]:
    command = settings.get("command")
    if isinstance(command, str):
        try:
            command = shlex.split(command)
        except ValueError as error:
            raise Refused(f"'command' cannot be split into words: {error}") from None
    command = check_string_list("command", command)
    if not command or not command[0]:
        raise Refused("'command' must name a program")
    args = settings.get("args", [])
    if not isinstance(args, list):
        raise Refused("'args' must be a list")
    payload, pass_to = (
        settings.get("payload"),
        check_choice("pass_to", settings.get("pass_to", "arg"), get_args(PassTo)),
    )
    if pass_to == "template":
        command[1:] = [_rendered(one, payload) for one in command[1:]]
    argv = [*command, *map(_text, args)]
    if pass_to == "arg" and payload is not None:
        argv.append(_text(payload))
    for one in argv:
        _check_text("an argument", one)
    return argv


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _check_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused(f"{what} is not a text that can be encoded") from None
    if "\0" in text:
        raise Refused(f"{what} contains a zero byte, which no program can be given")


def _program(name: str) -> str:
    """The path of what is run. A name is looked up in our folders, whatever PATH says; a path is one that is
    listed, letter by letter, so nothing is gained by links and dots."""
    listed = read_allowlist(COMMANDS_VARIABLE)
    if not listed:
        message = f"this worker runs no programs: {COMMANDS_VARIABLE} is not set"
        raise Refused(f"{message}; name those that it may run, such as {name}")
    if "/" in name and not name.startswith("/"):
        raise Refused(f"{name!r} is neither the name of a program nor an absolute path")
    if name not in listed and "*" not in listed:
        raise Refused(f"this worker may not run {name}: name it in {COMMANDS_VARIABLE} if that is meant")
    path = name if "/" in name else _found(name)
    if is_under_root(path):
        raise Refused(f"{name} lies where the executor 'file' writes: it is never run")
    return path


def _found(name: str) -> str:
    for folder in SEARCH_FOLDERS:
        path = f"{folder}/{name}"
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise ProcessFailed(
        f"there is no program {name} on this worker: it is not in {', '.join(SEARCH_FOLDERS)}"
    )


# ---- templates


_PLACE = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_PATH = re.compile(r"(raw|input|json)((?:\.\w+)*)")


def _rendered(text: str, payload: Any) -> str:
    """`{{ raw }}` is the payload as a text; `{{ input.a.0 }}` and `{{ json.a.0 }}` are what lies there in it,
    where `json` reads a payload that is a text as JSON."""
    return _PLACE.sub(lambda found: _text(_read(found[1], payload)), text)


def _read(name: str, payload: Any) -> Any:
    found = _PATH.fullmatch(name)
    if found is None:
        raise Refused(f"{{{{ {name} }}}} is not understood: write raw, input or json, and names after dots")
    if payload is None:
        raise Refused(f"{{{{ {name} }}}}: there is no payload")
    if found[1] == "raw":
        value: Any = _text(payload)
    elif found[1] == "json" and isinstance(payload, str):
        value = _json(payload)
    else:
        value = payload
    for part in found[2].split(".")[1:]:
        try:
            value = value[int(part) if isinstance(value, list) else part]
        except (LookupError, TypeError, ValueError):
            raise Refused(f"{{{{ {name} }}}}: the payload has no {part!r} there") from None
    return value


# ---- what it is given


def _stdin(settings: Mapping[str, Any]) -> bytes:
    value = settings.get("stdin")
    if settings.get("pass_to") == "stdin":
        if value is not None:
            raise Refused("'stdin' and a 'payload' that is passed to it: give one of them")
        value = settings.get("payload")
    if value is None:
        return b""
    try:
        return _text(value).encode()
    except UnicodeEncodeError:
        raise Refused("'stdin' is not a text that can be encoded") from None


def _environment(settings: Mapping[str, Any]) -> dict[str, str]:
    given = settings.get("environment", {})
    if not isinstance(given, dict):
        raise Refused("'environment' must be a mapping of names to values")
    made = {"PATH": ":".join(SEARCH_FOLDERS)}
    for name in check_string_list("pass_environment", settings.get("pass_environment", [])):
        check_variable(name, "the variable")
        if name in os.environ:
            made[name] = os.environ[name]
    for name, value in given.items():
        check_variable(name, "the variable")
        if LOADER_VARIABLES.fullmatch(name) or not re.fullmatch(r"\w+", name, re.ASCII):
            raise Refused(f"the variable {name!r} cannot be set: it could change what is run")
        made[name] = _text(value)
        _check_text(f"the variable {name!r}", made[name])
    return made


def _exit_codes(settings: Mapping[str, Any]) -> list[int]:
    codes = settings.get("exit_codes", [0])
    if not isinstance(codes, list) or not codes or not all(type(one) is int for one in codes):
        raise Refused("'exit_codes' must be a list of numbers: those that are a success")
    return codes


# ---- what it brought


def _why(ended: CommandResult, in_time: str) -> str:
    if ended.error is not None:
        hint = "; give what is long by 'stdin'" if ended.error == errno.E2BIG else ""
        return f"cannot be run: {os.strerror(ended.error)}{hint}"
    if ended.returncode is None:
        return f"did not end{in_time}, and was killed with all that it had started"
    if ended.returncode < 0:
        return f"was killed by {_signal(-ended.returncode)}"
    return f"ended with exit code {ended.returncode}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _output(ended: CommandResult) -> dict[str, Any]:
    """What is no text is shown as far as it is one: `json` is there if all of the standard output is JSON."""
    text = ended.stdout.head.decode(errors="replace")
    output: dict[str, Any] = {
        "stdout": text,
        "stderr": ended.stderr.head.decode(errors="replace"),
        "returncode": ended.returncode,
    }
    streams = {"stdout": ended.stdout, "stderr": ended.stderr}
    cut = {name: kept.size for name, kept in streams.items() if kept.is_cut}
    if cut:
        output["cut"] = cut
    if "stdout" not in cut and (found := _json(text)) is not None:
        output["json"] = found
    return output


def _json(text: str) -> Any:
    """None for what is no JSON, or cannot be written as such."""
    try:
        found = json.loads(text)
        json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return found


class _Shown:
    """What is shown of a command: its name and how many arguments it has, unless the settings say more."""

    def __init__(self, argv: list[str], settings: Mapping[str, Any]) -> None:
        indexes = settings.get("redact_args") or []
        if not isinstance(indexes, list):
            raise Refused("'redact_args' must be a list of numbers: 1 is the first argument")
        patterns = check_string_list("redact_patterns", settings.get("redact_patterns") or [])
        self._hidden = [
            one for n, one in enumerate(argv) if n in indexes or any(part in one for part in patterns)
        ]
        words = [REDACTED if one in self._hidden else shlex.quote(one) for one in argv]
        if not (indexes or patterns or settings.get("log_full_command")):
            words = [argv[0], f"<{len(argv) - 1} arguments>"]
        self.command = " ".join(words)

    def tail(self, ended: CommandResult) -> str:
        """The end of what it had to say, without the arguments that are not to be shown."""
        said = ended.stderr.tail.decode(errors="replace")
        for one in sorted(self._hidden, key=len, reverse=True):
            said = said.replace(one, REDACTED) if one else said
        said = said[-MAX_STDERR_EXCERPT:].strip()
        return f": {said}" if said else ""
