"""Errors: each message says what to do, and each error keeps what it is about."""

from __future__ import annotations

import pytest

from orchestrator.application.errors import (
    BadConfiguration,
    Busy,
    ConfigurationMissing,
    ExecutorNotFound,
    ExecutorNotImportable,
    HeartbeatMissing,
    IllegalTransition,
    NoRoute,
    OrchestratorError,
    RecordConflict,
    RecordExists,
    RecordNotFound,
    RejectedByWorker,
    SecretNotFound,
    SecretUnavailable,
    StartRejected,
    StoreError,
    VariableRefused,
)

MESSAGES: list[tuple[OrchestratorError, str]] = [
    (IllegalTransition("step a", "complete", "ready"), "step a must not go from complete to ready"),
    (
        ExecutorNotFound("charge", ["ship", "reserve"]),
        "no executor is called 'charge'; this worker has: reserve, ship",
    ),
    (
        ExecutorNotFound("charge", [], "; did you mean 'pay'?"),
        "no executor is called 'charge'; this worker has: none; did you mean 'pay'?",
    ),
    (
        ExecutorNotImportable("a", "charge"),
        "step 'a' has isolation: process, but another process cannot import its executor 'charge' by module"
        " and name: define it at the top level of a module that is not the main program",
    ),
    (
        HeartbeatMissing("a", "charge", 30.0),
        "step 'a' has a heartbeat of 30 s, but its executor 'charge' takes no parameter called heartbeat:"
        " write def charge(inputs, heartbeat), and call heartbeat() at least that often",
    ),
    (
        ConfigurationMissing("a", "charge"),
        "the source of step 'a' has a configuration, but its executor 'charge' takes no parameter"
        " called configuration: write def charge(inputs, configuration)",
    ),
    (
        BadConfiguration("headers.token"),
        "the configuration of its source cannot be evaluated on this worker: headers.token"
        " (its value is not shown, because it may be a secret)",
    ),
    (
        SecretUnavailable("db", "vault", ValueError("hunter2")),
        "the secret 'db' is not available now: vault raised ValueError",
    ),
    (SecretNotFound("db", "it has none"), "this worker has no secret 'db': it has none"),
    (
        VariableRefused("HOME", "ENV_ALLOWED"),
        "a source reads the environment variable 'HOME', which this worker does not allow:"
        " add it to ENV_ALLOWED of the worker, or use a secret instead",
    ),
    (
        NoRoute("a", ["gpu", "eu"], "ROUTES", ""),
        "step 'a' needs a worker with the tags gpu, eu, and no entry of ROUTES covers them: add one to the"
        " settings of the coordinators, such as gpu+eu=QUEUE, or set the queue of the step"
        " (known entries: none)",
    ),
    (StartRejected("no such workflow"), "no such workflow"),
    (RecordNotFound("x"), "no execution has the id 'x'"),
    (RecordExists("x"), "an execution with the id 'x' already exists"),
    (RecordConflict("w#x", "7"), "execution 'w#x' is no longer at version 7"),
]


@pytest.mark.parametrize(("error", "message"), MESSAGES, ids=[type(error).__name__ for error, _ in MESSAGES])
def test_the_message_names_what_is_wrong(error: OrchestratorError, message: str) -> None:
    assert str(error) == message


@pytest.mark.parametrize(
    ("sent", "told"), [((), "nothing was sent"), (("1-0", "1-1"), "2 were sent")], ids=["none", "some"]
)
def test_a_busy_system_says_how_many_starts_were_sent(sent: tuple[str, ...], told: str) -> None:
    error = Busy(1_200, 1_000, sent)

    assert str(error).startswith("busy: 1,200 starts wait for coordinators, and the limit is 1,000")
    assert told in str(error)
    assert (error.waiting, error.max_waiting, error.sent, error.exit_code) == (1_200, 1_000, sent, 7)


def test_an_error_keeps_what_it_is_about() -> None:
    problem = {"path": "steps", "code": "missing", "message": "is required"}

    assert StartRejected("invalid", [problem]).problems == (problem,)
    assert ExecutorNotFound("charge", []).fn == "charge"
    assert SecretNotFound("db", "it has none").name == "db"
    assert VariableRefused("HOME", "ENV_ALLOWED").name == "HOME"
    assert RecordNotFound("x").workflow_execution_id == "x"
    assert RecordExists("x").execution_id == "x"
    assert (RecordConflict("w#x", "7").workflow_execution_id, RecordConflict("w#x", "7").version) == (
        "w#x",
        "7",
    )


def test_an_error_can_be_caught_by_its_family() -> None:
    assert issubclass(RecordNotFound, KeyError), "the Store port documents that type"
    assert {StoreError} == {one.__base__ for one in (RecordNotFound, RecordExists, RecordConflict)}
    assert {RejectedByWorker} == {one.__base__ for one in (SecretNotFound, VariableRefused)}
