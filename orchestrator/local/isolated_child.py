"""The child process that runs the executors of steps with `isolation: process`, one call after another.

It is started by isolated_process.py. It ends with its parent: at the end of its input, and when the pipe
LIFELINE is closed, also in the middle of a call.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.invocation.invoke import Call, Failure, Result, invoke
from orchestrator.local.job_call import build_job_context
from orchestrator.processes import exit_with_parent
from orchestrator.settings import Settings


@dataclass(frozen=True, slots=True)
class Request:
    """One call: the executor by its module and name, the arguments before its inputs, the job with its large
    inputs loaded, and the settings of the parent."""

    module: str
    name: str
    leading: tuple[Any, ...]
    job: DispatchJob
    started_ms: int
    settings: Settings


def main(requests: int, replies: int, lifeline: int) -> None:
    """Serve the requests in one pipe, and write log lines, heartbeats and results to another."""
    exit_with_parent(lifeline)
    incoming, outgoing = Connection(requests, writable=False), Connection(replies, readable=False)
    while True:
        try:
            request: Request = incoming.recv()
        except EOFError:
            return
        outgoing.send(("result", invoke(IsolatedCall(request, outgoing.send))))


def find_function(module: str, name: str) -> Callable[..., Any]:
    """The function with this qualified name in a module, which is imported."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    function: Callable[..., Any] = found
    return function


class IsolatedCall(Call):
    """The call of one request. What concerns the parent is sent to it."""

    def __init__(self, request: Request, send: Callable[[tuple[str, Any]], None]) -> None:
        job = request.job
        self.step_id, self.fn = job.step_id, job.fn
        self.source, self.heartbeat_s = job.source, job.heartbeat_s
        self.secrets, self.redact = job.secrets, job.redact
        self.max_output_bytes = job.max_output_bytes
        self.settings = request.settings
        self._request, self._send = request, send

    def find_executor(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return find_function(self._request.module, self._request.name), self._request.leading

    def load_inputs(self) -> tuple[dict[str, Any], Failure | None]:
        return self._request.job.inputs, None

    def clock(self) -> float:
        """The time of heartbeats: the parent notes that there was one."""
        self._send(("alive", None))
        return time.monotonic()

    def build_context(self) -> dict[str, Any]:
        return build_job_context(self._request.job, self._request.started_ms)

    def log(self, text: str) -> None:
        self._send(("log", text))

    def log_heartbeat(self, text: str) -> None:
        self._send(("log_heartbeat", text))

    def keep_note(self, text: str) -> None:
        self._send(("keep_note", text))

    def is_fatal(self, error: BaseException) -> bool:
        return False

    def offload(self, text: str) -> Result:
        """The parent stores large outputs."""
        return text, None
