"""Runs the executors of steps with `isolation: process` in child processes, which can be killed.

    pool thread ─ request ─▸ child process ─ invoke ─▸ executor
                ◂ log lines, heartbeats, result ─

A child is started by its own command line, never by a fork, and is kept for the next call. It holds one end
of a pipe whose other end only this process has: when this process dies, by any signal, the child exits.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from orchestrator.application.errors import ExecutorNotFound, ExecutorNotImportable
from orchestrator.application.records.events import make_failure
from orchestrator.invocation.invoke import Result
from orchestrator.invocation.parameters import Heartbeat
from orchestrator.local.isolated_child import Request, find_function
from orchestrator.local.job_run import PoolCall, ProcessDied

MAX_IDLE = 8
"""How many children are kept for the next calls."""

_CODE = (
    "import sys; sys.path[:] = sys.argv[4:]; from orchestrator.local.isolated_child import main;"
    " main(*map(int, sys.argv[1:4]))"
)
"""The program of a child: it imports what its parent can import."""


def call_isolated(call: PoolCall) -> Result:
    """Call the executor of a job in a child process; ProcessDied if that ends without a result."""
    try:
        executor, leading = call.find_executor()
        module, name = _importable_name(executor, call.step_id, call.fn)
    except ExecutorNotFound as error:
        return None, make_failure("exception", str(error), type(error).__name__)
    except ExecutorNotImportable as error:
        return None, make_failure("refused", str(error), type(error).__name__)
    inputs, failure = call.load_inputs()
    if failure is not None:
        return None, failure
    job = replace(call.job, inputs=inputs)
    settings = replace(call.settings, environment=dict(call.settings.environment))
    request = Request(module, name, leading, job, call.started_ms, settings)
    text, failure = _ask(request, call)
    if text is not None and len(text.encode()) > call.max_output_bytes:
        return call.offload(text)
    return text, failure


def _importable_name(executor: Callable[..., Any], step: str, fn: str) -> tuple[str, str]:
    """The module and the qualified name with which another process can import an executor."""
    module, name = getattr(executor, "__module__", None), getattr(executor, "__qualname__", None)
    if module is None or name is None or module == "__main__":
        raise ExecutorNotImportable(step, fn)
    try:
        found = find_function(module, name)
    except (ImportError, AttributeError):
        found = None
    if found is not executor:
        raise ExecutorNotImportable(step, fn)
    return module, name


def _ask(request: Request, call: PoolCall) -> Result:
    child = _take_idle() or _Child()
    call.run.on_stop(child.kill)
    try:
        result = child.ask(request, lambda kind, text: _on_message(call, kind, text))
    except (EOFError, OSError):
        raise ProcessDied(child.end()) from None
    except BaseException:
        child.end()
        raise
    finally:
        call.after_call()
    _keep_idle(child)
    return result


def _on_message(call: PoolCall, kind: str, text: str) -> None:
    match kind:
        case "alive":
            if call.run.heartbeat is None:
                call.watch(Heartbeat(call.clock))
            else:
                call.run.heartbeat()
        case "log":
            call.log(text)
        case "log_heartbeat":
            call.log_heartbeat(text)
        case "keep_note":
            call.keep_note(text)


class _Child:
    """A child process. It leads a session of its own: Ctrl-C in a terminal does not reach it, and all
    processes that it starts are killed with it."""

    def __init__(self) -> None:
        requests_end, requests = os.pipe()
        replies, replies_end = os.pipe()
        lifeline_end, self._lifeline = os.pipe()
        ends = (requests_end, replies_end, lifeline_end)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE, *map(str, ends), *sys.path],
                stdin=subprocess.DEVNULL,
                pass_fds=ends,
                start_new_session=True,
            )
        finally:
            for end in ends:
                os.close(end)
        self._requests = Connection(requests, readable=False)
        self._replies = Connection(replies, writable=False)

    def ask(self, request: Request, on_message: Callable[[str, str], None]) -> Result:
        self._requests.send(request)
        while True:
            kind, value = self._replies.recv()
            if kind == "result":
                result: Result = value
                return result
            on_message(kind, value)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> str:
        """Kill it and free what it holds; returns how it ended."""
        code = self._process.poll()
        self.kill()
        self._process.wait()
        self._requests.close()
        self._replies.close()
        os.close(self._lifeline)
        code = self._process.returncode if code is None else code
        return f"signal {-code}" if code < 0 else f"exit code {code}"


_lock = threading.Lock()
_idle: list[_Child] = []


def _take_idle() -> _Child | None:
    with _lock:
        while _idle:
            child = _idle.pop()
            if child._process.poll() is None:
                return child
            child.end()
    return None


def _keep_idle(child: _Child) -> None:
    with _lock:
        if len(_idle) < MAX_IDLE:
            _idle.append(child)
            return
    child.end()


def _end_idle() -> None:
    with _lock:
        while _idle:
            _idle.pop().end()


def _forget_children() -> None:
    """In a forked child: the children belong to its parent."""
    global _lock
    _lock = threading.Lock()
    _forgotten.extend(_idle)
    _idle.clear()


_forgotten: list[_Child] = []
"""Children of the process that this one was forked from. Dropping them would warn that they still run."""

atexit.register(_end_idle)
os.register_at_fork(after_in_child=_forget_children)
