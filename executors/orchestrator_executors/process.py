"""The executor `process`: runs a program, never a shell.

    ORCHESTRATOR_PROCESS_COMMANDS   the programs that may be run, separated by commas: absolute paths, or
                                    names that are searched in /usr/local/bin, /usr/bin and /bin; * allows any
                                    program, and so everything that the user of the worker may do; if unset,
                                    none
    ORCHESTRATOR_ENV_VARIABLES      the environment variables that a program may get
    ORCHESTRATOR_FILE_ROOT          the folder that contains `cwd`

The document names the program; data of an execution can only become its arguments and its input. Its
environment has only the variables that the document names. Every process that it starts is killed when it
ends, when it times out, and when the worker is killed; see `guard.py`.
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

from .folders import ROOT_VARIABLE, is_under_root, open_folder, split_path
from .guarded import Command, CommandResult, run
from .settings import (
    REDACTED,
    Refused,
    check_choice,
    check_encodable,
    check_number,
    check_string_list,
    check_variable,
    merge_settings,
    read_allowlist,
)

__all__ = ["process"]

COMMANDS_VARIABLE = "ORCHESTRATOR_PROCESS_COMMANDS"
SEARCH_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
DEFAULT_MAX_BYTES = 262_144
MAX_STDERR_EXCERPT = 1_000
PassTo = Literal["arg", "stdin", "template"]
DATA_INPUTS = frozenset({"payload", "args", "stdin"})
LOADER_VARIABLES = re.compile(r"(LD|DYLD)_.*|PATH|GCONV_PATH|GLIBC_TUNABLES|LOCPATH|MALLOC_.*")
"""Variables that change which code a program loads."""


class ProcessInputs(TypedDict, total=False):
    """`payload`, `args` and `stdin` are data. All other settings may be in the configuration, and must be
    there if the configuration has `command`."""

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
    """The program could not be run, did not end in time, or ended with a code that is not a success."""


def process(
    inputs: ProcessInputs,
    configuration: dict[str, Any],
    heartbeat: Callable[[], None],
    log: Callable[[str], None],
    cancelled: Callable[[], bool],
) -> dict[str, Any]:
    """Run `command` and return `{stdout, stderr, returncode, json?}`.

    Any output of the program counts as a heartbeat. `json` is present if the whole stdout is JSON.
    """
    settings = _merge_settings(configuration, inputs)
    argv = _argv(settings)
    redactor = _ArgumentRedactor(argv, settings)
    stdin = _stdin(settings)
    codes = _exit_codes(settings)
    timeout_s = check_number("timeout", settings["timeout"]) if settings.get("timeout") is not None else None
    max_bytes = int(check_number("max_bytes", settings.get("max_bytes", DEFAULT_MAX_BYTES)))
    environment = _environment(settings)
    program = _find_program(argv[0])
    deadline_at = float("inf") if timeout_s is None else time.monotonic() + timeout_s
    log(f"running {redactor.command}")
    with ExitStack() as stack:
        folder = None
        if "cwd" in settings:
            folder = stack.enter_context(open_folder(split_path(settings["cwd"])))
        command = Command([program, *argv[1:]], environment, stdin, folder)
        result = run(
            command,
            max_bytes,
            lambda: time.monotonic() < deadline_at and not cancelled(),
            lambda: heartbeat(),
        )
    if result.returncode not in codes:
        in_time = f" within {timeout_s:g} s" if time.monotonic() >= deadline_at else ""
        raise ProcessFailed(
            f"{argv[0]} {_describe_failure(result, in_time)}{redactor.stderr_excerpt(result)}"
        )
    return _output(result)


def _merge_settings(configuration: Mapping[str, Any], inputs: Mapping[str, object]) -> dict[str, Any]:
    known = ProcessInputs.__annotations__.keys() - DATA_INPUTS
    if "command" in configuration:
        for name in inputs:
            if name in known:
                raise Refused(f"{name!r} belongs in the configuration, which has the command")
    return merge_settings(configuration, inputs, known, DATA_INPUTS)


# ---- the command


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
    payload = settings.get("payload")
    pass_to = check_choice("pass_to", settings.get("pass_to", "arg"), get_args(PassTo))
    if pass_to == "template":
        command[1:] = [_render(one, payload) for one in command[1:]]
    argv = [*command, *map(_text, args)]
    if pass_to == "arg" and payload is not None:
        argv.append(_text(payload))
    for one in argv:
        _check_argument("an argument", one)
    return argv


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _check_argument(what: str, text: str) -> None:
    check_encodable(text, what)
    if "\0" in text:
        raise Refused(f"{what} contains a zero byte, which cannot be passed to a program")


def _find_program(name: str) -> str:
    """The path of the program. A name is searched only in SEARCH_FOLDERS, whatever PATH says. A path must be
    listed literally, so links and dots cannot bypass the list."""
    listed = read_allowlist(COMMANDS_VARIABLE)
    if not listed:
        message = f"this worker runs no programs: {COMMANDS_VARIABLE} is not set"
        raise Refused(f"{message}; set it to the programs that it may run, such as {name}")
    if "/" in name and not name.startswith("/"):
        raise Refused(f"{name!r} is neither the name of a program nor an absolute path")
    if name not in listed and "*" not in listed:
        raise Refused(f"this worker may not run {name}: add it to {COMMANDS_VARIABLE} to allow this")
    path = name if "/" in name else _search(name)
    if is_under_root(path):
        raise Refused(f"{name} is below {ROOT_VARIABLE}, where steps can write: it is never run")
    return path


def _search(name: str) -> str:
    for folder in SEARCH_FOLDERS:
        path = f"{folder}/{name}"
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise ProcessFailed(
        f"there is no program {name} on this worker: it is not in {', '.join(SEARCH_FOLDERS)}"
    )


# ---- templates


_PLACEHOLDER = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_PATH = re.compile(r"(raw|input|json)((?:\.\w+)*)")


def _render(text: str, payload: Any) -> str:
    """Replace the placeholders: `{{ raw }}` is the payload as text; `{{ input.a.0 }}` and `{{ json.a.0 }}`
    are values in the payload, where `json` parses a payload that is a string."""
    return _PLACEHOLDER.sub(lambda match: _text(_read_placeholder(match[1], payload)), text)


def _read_placeholder(name: str, payload: Any) -> Any:
    match = _PATH.fullmatch(name)
    if match is None:
        raise Refused(f"{{{{ {name} }}}} is not valid: write raw, input or json, and names after dots")
    if payload is None:
        raise Refused(f"{{{{ {name} }}}}: there is no payload")
    if match[1] == "raw":
        value: Any = _text(payload)
    elif match[1] == "json" and isinstance(payload, str):
        value = _parse_json(payload)
    else:
        value = payload
    for part in match[2].split(".")[1:]:
        try:
            value = value[int(part) if isinstance(value, list) else part]
        except (LookupError, TypeError, ValueError):
            raise Refused(f"{{{{ {name} }}}}: the payload has no {part!r} at that place") from None
    return value


# ---- stdin, environment, exit codes


def _stdin(settings: Mapping[str, Any]) -> bytes:
    value = settings.get("stdin")
    if settings.get("pass_to") == "stdin":
        if value is not None:
            raise Refused("'stdin' cannot be combined with a 'payload' that is passed to stdin")
        value = settings.get("payload")
    if value is None:
        return b""
    return check_encodable(_text(value), "'stdin'").encode()


def _environment(settings: Mapping[str, Any]) -> dict[str, str]:
    variables = settings.get("environment", {})
    if not isinstance(variables, dict):
        raise Refused("'environment' must be a mapping of names to values")
    environment = {"PATH": ":".join(SEARCH_FOLDERS)}
    for name in check_string_list("pass_environment", settings.get("pass_environment", [])):
        check_variable(name)
        if name in os.environ:
            environment[name] = os.environ[name]
    for name, value in variables.items():
        check_variable(name)
        if LOADER_VARIABLES.fullmatch(name) or not re.fullmatch(r"\w+", name, re.ASCII):
            raise Refused(f"the variable {name!r} cannot be set: it could change which code is run")
        environment[name] = _text(value)
        _check_argument(f"the variable {name!r}", environment[name])
    return environment


def _exit_codes(settings: Mapping[str, Any]) -> list[int]:
    codes = settings.get("exit_codes", [0])
    if not isinstance(codes, list) or not codes or not all(type(one) is int for one in codes):
        raise Refused("'exit_codes' must be a list of numbers: the exit codes of a success")
    return codes


# ---- the result


def _describe_failure(result: CommandResult, in_time: str) -> str:
    if result.error is not None:
        hint = "; pass long data by 'stdin'" if result.error == errno.E2BIG else ""
        return f"cannot be run: {os.strerror(result.error)}{hint}"
    if result.returncode is None:
        return f"did not end{in_time}, and was killed with all processes that it had started"
    if result.returncode < 0:
        return f"was killed by {_signal_name(-result.returncode)}"
    return f"ended with exit code {result.returncode}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _output(result: CommandResult) -> dict[str, Any]:
    """The output of the executor. Bytes that are not UTF-8 are replaced."""
    text = result.stdout.head.decode(errors="replace")
    output: dict[str, Any] = {
        "stdout": text,
        "stderr": result.stderr.head.decode(errors="replace"),
        "returncode": result.returncode,
    }
    streams = {"stdout": result.stdout, "stderr": result.stderr}
    cut = {name: stream.size for name, stream in streams.items() if stream.is_cut}
    if cut:
        output["cut"] = cut
    if "stdout" not in cut and (value := _parse_json(text)) is not None:
        output["json"] = value
    return output


def _parse_json(text: str) -> Any:
    """The value, or None for a string that is not JSON or has a value that strict JSON cannot store."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value


class _ArgumentRedactor:
    """The command as it may be shown: the program and the number of arguments, unless the settings allow
    more."""

    def __init__(self, argv: list[str], settings: Mapping[str, Any]) -> None:
        indexes = settings.get("redact_args") or []
        if not isinstance(indexes, list):
            raise Refused("'redact_args' must be a list of numbers: 1 is the first argument")
        patterns = check_string_list("redact_patterns", settings.get("redact_patterns") or [])
        self._redacted = [
            one for n, one in enumerate(argv) if n in indexes or any(part in one for part in patterns)
        ]
        parts = [REDACTED if one in self._redacted else shlex.quote(one) for one in argv]
        if not (indexes or patterns or settings.get("log_full_command")):
            parts = [argv[0], f"<{len(argv) - 1} arguments>"]
        self.command = " ".join(parts)

    def stderr_excerpt(self, result: CommandResult) -> str:
        """The end of the standard error, without the redacted arguments."""
        text = result.stderr.tail.decode(errors="replace")
        for argument in sorted(self._redacted, key=len, reverse=True):
            text = text.replace(argument, REDACTED) if argument else text
        text = text[-MAX_STDERR_EXCERPT:].strip()
        return f": {text}" if text else ""
