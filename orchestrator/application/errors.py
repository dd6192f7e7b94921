"""Every error raised on purpose.

OrchestratorError
├── InvalidSpec            the workflow as written is wrong; nothing was started
├── InvalidEvent           an event that cannot be understood; it goes to the dead letters
├── ExpressionError        an expression could not be evaluated; the step fails, nothing else
├── IllegalTransition      a step or workflow was about to move where it must not: a defect here
├── ExecutorNotFound       no executor answers to this name; the attempt fails
├── HeartbeatMissing       a step wants a heartbeat, and its executor takes none; the attempt fails
├── ConfigurationMissing   a source has a configuration, and its executor takes none; the attempt fails
├── BadConfiguration       the configuration of a source cannot be evaluated; the attempt fails
├── SecretUnavailable      whoever knows the secrets could not be asked; the attempt fails
├── Refused                a worker will not do this however often it is asked; the step fails
│   ├── SecretNotFound     a step refers to a secret that its worker does not have, or cannot read
│   └── VariableRefused    a configuration reads a variable that its worker keeps to itself
├── NoRoute                no queue serves the tags of a step; its start is refused
├── StartRejected           the coordinator answered a start with a refusal
├── Busy                   too many starts wait already; nothing was sent, try later
├── TooLarge               a value is too large to be passed, by reference too
├── PayloadMissing         a value that is kept by reference is not in the payload store any more
└── StoreError
    ├── RecordNotFound     no execution has this id
    ├── RecordExists       an execution with this id is already there
    ├── Unavailable        the store cannot be reached, or cannot write now; it passes by itself
    └── RecordConflict     somebody committed first; load again and decide again
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


class OrchestratorError(Exception):
    """The root of everything this package raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a document: where, what kind, in words, and what was likely meant.

    `source` says in which of several files, if the document was merged from them.
    """

    path: str
    code: str
    message: str
    hint: str | None = None
    line: int | None = None
    column: int | None = None
    source: str | None = None

    def __str__(self) -> str:
        place = f"{self.line}:{self.column}: " if self.line is not None else ""
        path = f"{self.path}: " if self.path else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{place}{path}{self.message}{hint} [{self.code}]"

    def as_dict(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


class InvalidSpec(OrchestratorError):
    """All problems of one document in one answer."""

    def __init__(self, problems: Iterable[Problem], source: str | None = None) -> None:
        self.problems = tuple(problems)
        self.source = source
        super().__init__(self._text())

    def _text(self) -> str:
        sources = (problem.source or self.source for problem in self.problems)
        pairs = zip(sources, self.problems, strict=True)
        return "\n".join(f"{source}:{problem}" if source else str(problem) for source, problem in pairs)


class InvalidEvent(OrchestratorError):
    """The event's fields do not make sense; the reason is for the one who sent it."""


class ExpressionError(OrchestratorError):
    """An expression could not be evaluated on this data."""


class IllegalTransition(OrchestratorError):
    def __init__(self, what: str, before: str, after: str) -> None:
        super().__init__(f"{what} must not go from {before} to {after}")
        self.what, self.before, self.after = what, before, after


class ExecutorNotFound(OrchestratorError):
    def __init__(self, fn: str, known: Iterable[str], hint: str = "") -> None:
        names = ", ".join(sorted(known)) or "none"
        super().__init__(f"no executor is called {fn!r}; this worker knows: {names}{hint}")
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
    """It names a key and never a value: those may be secrets of the worker."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the configuration of its source cannot be evaluated on this worker: {key}"
            " (what was found there is not shown: it may be a secret)"
        )


class SecretUnavailable(OrchestratorError):
    """It names what was asked and what kind of error it raised: what that says may hold anything."""

    def __init__(self, name: str, provider: str, error: BaseException) -> None:
        kind = type(error).__name__
        super().__init__(f"the secret {name!r} cannot be had now: {provider} raised {kind}")


class RejectedByWorker(OrchestratorError):
    """A worker will not do this, however often it is asked."""


class SecretNotFound(RejectedByWorker):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"this worker has no secret {name!r}: {why}")
        self.name = name


class VariableRefused(RejectedByWorker):
    def __init__(self, name: str, setting: str) -> None:
        super().__init__(
            f"a source reads the environment variable {name!r}, which this worker keeps to itself:"
            f" name it in {setting} of the worker, or use a secret instead"
        )
        self.name = name


class NoRoute(OrchestratorError):
    def __init__(self, step: str, tags: Sequence[str], setting: str, known: str) -> None:
        super().__init__(
            f"step {step!r} needs a worker with the tags {', '.join(tags)}, and no entry of {setting} covers"
            f" them: add one to the settings of the coordinators, such as {'+'.join(tags)}=QUEUE,"
            f" or write the queue of the step (known are: {known or 'none'})"
        )


class StartRejected(OrchestratorError):
    """A start was answered with a refusal; `problems` holds the details of an invalid spec."""

    def __init__(self, reason: str, problems: Iterable[dict[str, Any]] = ()) -> None:
        super().__init__(reason)
        self.reason, self.problems = reason, tuple(problems)


class Busy(OrchestratorError):
    """Too many starts wait for coordinators. `sent` are the entry ids of those that went before."""

    exit_code = 7

    def __init__(self, waiting: int, most: int, sent: Sequence[str] = ()) -> None:
        super().__init__(
            f"busy: {waiting:,} starts wait for coordinators, and no more than {most:,} may"
            f" (ORCHESTRATOR_MAX_BACKLOG); {len(sent) or 'nothing'} {'were' if sent else 'was'} sent."
            " Try later, or start more coordinators and workers: orchestrator doctor says which"
        )
        self.waiting, self.most, self.sent = waiting, most, tuple(sent)


class TooLarge(OrchestratorError):
    """Says what is too large, by how much, and which limit it is."""


class PayloadMissing(OrchestratorError):
    """Says which value is not there any more."""


class StoreError(OrchestratorError):
    """The store could not do what was asked."""


class RecordNotFound(StoreError, KeyError):
    """A KeyError too, because that is what the Store port has always promised."""

    def __init__(self, workflow_execution_id: str) -> None:
        super().__init__(f"no execution has the id {workflow_execution_id!r}")
        self.workflow_execution_id = workflow_execution_id

    def __str__(self) -> str:
        return str(self.args[0])


class RecordExists(StoreError):
    def __init__(self, execution_id: str) -> None:
        super().__init__(f"an execution with the id {execution_id!r} already exists")
        self.execution_id = execution_id


class Unavailable(StoreError):
    """Whether the last command was carried out is unknown: look again before acting."""


class RecordConflict(StoreError):
    def __init__(self, workflow_execution_id: str, version: str) -> None:
        super().__init__(f"execution {workflow_execution_id!r} is no longer at version {version}")
        self.workflow_execution_id, self.version = workflow_execution_id, version
