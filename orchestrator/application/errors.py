"""Every error that this package raises on purpose.

OrchestratorError
├── InvalidSpec            the workflow document is wrong; nothing was started
│   └── DocumentTooBig     its text has too many bytes or nodes; the rest was not checked
├── InvalidEvent           an event has missing or malformed fields; it becomes a dead letter
├── ExpressionError        an expression could not be evaluated; only its step fails
├── IllegalTransition      a step or workflow tried to enter a status it must not enter: a bug in this project
├── ExecutorNotFound       no executor has this name; the attempt fails
├── HeartbeatMissing       a step requires a heartbeat, and its executor takes none; the attempt fails
├── ConfigurationMissing   a source has a configuration, and its executor takes none; the attempt fails
├── BadConfiguration       the configuration of a source cannot be evaluated; the attempt fails
├── SecretUnavailable      the provider of the secrets failed; the attempt fails
├── RejectedByWorker       a worker rejects this, and would reject it again; the step fails without a retry
│   ├── ExecutorNotImportable   a step with isolation: process has an executor that no process can import
│   ├── SecretNotFound     a step refers to a secret that its worker does not have, or cannot read
│   └── VariableRefused    a configuration reads a variable that its worker does not allow
├── NoRoute                no queue serves the tags of a step; the start is rejected
├── StartRejected          the coordinator rejected a start
├── Busy                   too many starts are waiting; the start was not sent, and can be sent later
├── TooLarge               a value is too large to be passed, even by reference
├── HistoryNotKept         the history does not have the values of this commit
├── PayloadMissing         a value that is stored by reference is no longer in the payload store
└── StoreError
    ├── RecordNotFound     no execution has this id
    ├── RecordExists       an execution with this id already exists
    ├── AccessDenied       the store rejects our user or password
    ├── Unavailable        the store cannot be reached, or cannot write now; a temporary condition
    └── RecordConflict     another commit came first; load the record and decide again
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


class OrchestratorError(Exception):
    """The base class of every error that this package raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a document: where it is, its code, a message, and a hint how to fix it.

    `source` is the file with the problem, for a document that was merged from several files.
    """

    path: str
    code: str
    message: str
    hint: str | None = None
    line: int | None = None
    column: int | None = None
    source: str | None = None

    def __str__(self) -> str:
        position = f"{self.line}:{self.column}: " if self.line is not None else ""
        path = f"{self.path}: " if self.path else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{position}{path}{self.message}{hint} [{self.code}]"

    def located_in(self, source: str) -> str:
        """The problem with its file, as a compiler prints it: file:line:column: message."""
        return f"{source}:{'' if self.line is not None else ' '}{self}"

    def as_dict(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


class InvalidSpec(OrchestratorError):
    """A document is invalid; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem], source: str | None = None) -> None:
        self.problems = tuple(problems)
        self.source = source
        super().__init__(self._text())

    def _text(self) -> str:
        sources = (problem.source or self.source for problem in self.problems)
        pairs = zip(sources, self.problems, strict=True)
        return "\n".join(problem.located_in(source) if source else str(problem) for source, problem in pairs)


class DocumentTooBig(InvalidSpec):
    """A document has too many bytes, nodes or steps. This is found first, so nothing else was checked."""


class InvalidEvent(OrchestratorError):
    """The fields of an event are missing or malformed; the message is written for the sender of the event."""


class ExpressionError(OrchestratorError):
    """An expression could not be evaluated on this data."""


class IllegalTransition(OrchestratorError):
    def __init__(self, what: str, before: str, after: str) -> None:
        super().__init__(f"{what} must not go from {before} to {after}")
        self.what, self.before, self.after = what, before, after


class ExecutorNotFound(OrchestratorError):
    def __init__(self, fn: str, known: Iterable[str], hint: str = "") -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(f"no executor is called {fn!r}; this worker has: {names}{hint}")
        self.fn = fn


class HeartbeatMissing(OrchestratorError):
    def __init__(self, step: str, fn: str, heartbeat_s: float) -> None:
        super().__init__(
            f"step {step!r} has a heartbeat of {heartbeat_s:g} s, but its executor {fn!r} takes no parameter"
            f" called heartbeat: write def {fn}(inputs, heartbeat), and call heartbeat() at least that often"
        )


class ConfigurationMissing(OrchestratorError):
    def __init__(self, step: str, fn: str) -> None:
        super().__init__(
            f"the source of step {step!r} has a configuration, but its executor {fn!r} takes no parameter"
            f" called configuration: write def {fn}(inputs, configuration)"
        )


class BadConfiguration(OrchestratorError):
    """The configuration of a source cannot be evaluated. The message names the key and never the value,
    which may be a secret of the worker."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the configuration of its source cannot be evaluated on this worker: {key}"
            " (its value is not shown, because it may be a secret)"
        )


class SecretUnavailable(OrchestratorError):
    """The provider of the secrets raised an error. The message names the provider and the type of the error,
    and never the text of the error, which may contain the secret."""

    def __init__(self, name: str, provider: str, error: BaseException) -> None:
        kind = type(error).__name__
        super().__init__(f"the secret {name!r} is not available now: {provider} raised {kind}")


class RejectedByWorker(OrchestratorError):
    """A worker rejects a job, and would reject it again: the step fails without a retry."""


class ExecutorNotImportable(RejectedByWorker):
    def __init__(self, step: str, fn: str) -> None:
        super().__init__(
            f"step {step!r} has isolation: process, but another process cannot import its executor {fn!r} by"
            " module and name: define it at the top level of a module that is not the main program"
        )


class SecretNotFound(RejectedByWorker):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"this worker has no secret {name!r}: {why}")
        self.name = name


class VariableRefused(RejectedByWorker):
    def __init__(self, name: str, setting: str) -> None:
        super().__init__(
            f"a source reads the environment variable {name!r}, which this worker does not allow:"
            f" add it to {setting} of the worker, or use a secret instead"
        )
        self.name = name


class NoRoute(OrchestratorError):
    def __init__(self, step: str, tags: Sequence[str], setting: str, known: str) -> None:
        super().__init__(
            f"step {step!r} needs a worker with the tags {', '.join(tags)}, and no entry of {setting} covers"
            f" them: add one to the settings of the coordinators, such as {'+'.join(tags)}=QUEUE,"
            f" or set the queue of the step (known entries: {known or 'none'})"
        )


class StartRejected(OrchestratorError):
    """The coordinator rejected a start; `problems` lists what is wrong with an invalid spec."""

    def __init__(self, reason: str, problems: Iterable[dict[str, Any]] = ()) -> None:
        super().__init__(reason)
        self.reason, self.problems = reason, tuple(problems)


class Busy(OrchestratorError):
    """Too many starts wait for coordinators. `sent` has the entry ids of the starts that were sent."""

    exit_code = 7

    def __init__(self, waiting: int, max_waiting: int, sent: Sequence[str] = ()) -> None:
        super().__init__(
            f"busy: {waiting:,} starts wait for coordinators, and the limit is {max_waiting:,}"
            f" (ORCHESTRATOR_MAX_BACKLOG); {len(sent) or 'nothing'} {'were' if sent else 'was'} sent."
            " Try again later, or start more coordinators and workers: orchestrator doctor shows which"
        )
        self.waiting, self.max_waiting, self.sent = waiting, max_waiting, tuple(sent)


class TooLarge(OrchestratorError):
    """A value is too large; the message names the value, its size and the limit."""


class HistoryNotKept(OrchestratorError):
    """The history of an execution does not have the values of a commit."""


class PayloadMissing(OrchestratorError):
    """A value is no longer in the payload store; the message names the value."""


class StoreError(OrchestratorError):
    """The store could not carry out an operation."""


class RecordNotFound(StoreError, KeyError):
    """It is also a KeyError, because the Store port documents that type."""

    def __init__(self, workflow_execution_id: str) -> None:
        super().__init__(f"no execution has the id {workflow_execution_id!r}")
        self.workflow_execution_id = workflow_execution_id

    def __str__(self) -> str:
        return str(self.args[0])


class RecordExists(StoreError):
    def __init__(self, execution_id: str) -> None:
        super().__init__(f"an execution with the id {execution_id!r} already exists")
        self.execution_id = execution_id


class AccessDenied(StoreError):
    """The store rejects our user or password. Waiting does not help."""


class Unavailable(StoreError):
    """The store is unavailable. The last command may or may not have been carried out: read before acting."""


class RecordConflict(StoreError):
    def __init__(self, workflow_execution_id: str, version: str) -> None:
        super().__init__(f"execution {workflow_execution_id!r} is no longer at version {version}")
        self.workflow_execution_id, self.version = workflow_execution_id, version
