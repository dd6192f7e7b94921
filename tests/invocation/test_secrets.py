"""References to secrets: what a job carries of them, and what a worker puts there."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from orchestrator import Backend, Workflow
from orchestrator.application.errors import InvalidSpec, RejectedByWorker, SecretNotFound, SecretUnavailable
from orchestrator.application.records.decisions import Dispatch, DispatchJob
from orchestrator.application.redaction.by_key import REDACTED
from orchestrator.application.spec.validation import check_spec
from orchestrator.backend.sqlite.runner import SqliteRunner
from orchestrator.builder import WorkflowBuilder, literal, op, secret
from orchestrator.invocation.arguments import resolve_arguments
from orchestrator.invocation.secret_store import (
    FOLDER_VARIABLE,
    MAX_SECRET_BYTES,
    PROVIDER_VARIABLE,
    SECRET_PREFIX,
    read_secret,
    variable_of,
)
from orchestrator.redis_rq.job_codec import job_args, read_job, read_payload
from orchestrator.settings import Settings
from orchestrator.testing import WorkflowTest
from worlds.engine_world import world_of

Json = dict[str, Any]

DB = {"secret": "db"}
HUNTER = "hunter2-hunter2"
SECRETS = {"db": HUNTER, "api.token": "t0p/s3cret", "x": "xxxxxx"}


@pytest.fixture(autouse=True)
def _a_worker_with_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(variable_of(name), value)


# ---- what a job carries


def dispatched(step: Json, **keys: Any) -> DispatchJob:
    world = world_of({"steps": [{"id": "s", **step}], **keys})
    decision = world.advance()
    assert isinstance(decision, Dispatch)
    [job] = decision.jobs
    return job


def test_a_job_carries_the_places_and_the_names_only_if_there_are_some(tmp_path: Path) -> None:
    step = {"fn": "f", "input": {"a": [DB]}}
    job, plain = dispatched(step, redact=["iban"]), dispatched({"fn": "f"})
    runner = SqliteRunner(tmp_path / "jobs.db")
    runner.dispatch(job.workflow_execution_id, [job])

    words = [job_args(one, "p:events:0", "p.default") for one in (job, plain)]
    sent, unmarked = (
        read_payload(str(data), str(lease), job_id=str(name)) or {} for name, data, _, lease in words
    )

    assert (sent["secrets"], sent["redact"]) == ([["a", 0]], ["iban"])
    assert sent["inputs"] == {"a": [DB]}
    assert not {"secrets", "redact"} & unmarked.keys()
    for read in (read_job(sent, "default"), runner.list_pending_jobs()[0]):
        assert (read.secrets, read.redact) == ((("a", 0),), ("iban",))
    assert read_job(unmarked, "default").secrets == ()
    runner.close()


def test_data_that_looks_like_a_reference_stays_data() -> None:
    def give_it(inputs: Json) -> Json:
        return {"asked": DB}

    def take_it(inputs: Json) -> Json:
        seen.append(inputs)
        return {}

    seen: list[Json] = []
    document = {
        "steps": [
            {"id": "remote", "fn": "give"},
            {
                "id": "s",
                "fn": "take",
                "map": {"over": {"var": "input.items"}},
                "input": {
                    "mine": {"deep": [{"secret": "x"}]},
                    "theirs": {"var": "steps.remote.output.asked"},
                    "sent": {"var": "input.sent"},
                    "item": {"var": "item"},
                    "quoted": {"$literal": DB},
                },
            },
        ]
    }
    inputs = {"sent": {"deep": [DB]}, "items": [DB]}
    workflow = Workflow.from_dict(document, Backend({"give": give_it, "take": take_it}), inputs=inputs)

    workflow.run()

    assert seen == [
        {
            "mine": {"deep": ["xxxxxx"]},
            "theirs": DB,
            "sent": {"deep": [DB]},
            "item": DB,
            "quoted": DB,
        }
    ]


# ---- what a worker puts there


def test_each_secret_is_read_once_for_a_step() -> None:
    asked: list[str] = []

    def read(name: str) -> str:
        asked.append(name)
        return SECRETS[name]

    source = {"configuration": {"a": DB, "b": {"secret": "x"}}, "secrets": [["a"], ["b"]]}
    given = resolve_arguments({"p": DB, "q": DB}, source, {}, read, secrets=[["p"], ["q"]])

    assert asked == ["db", "x"]
    assert given.inputs == {"p": HUNTER, "q": HUNTER}
    assert given.configuration == {"a": HUNTER, "b": "xxxxxx"}


def test_secrets_are_hidden_everywhere_and_what_is_called_like_one_is_not_hidden_from_outputs() -> None:
    inputs = {"p": DB, "password": "swordfish", "iban": "DE0012", "user": "ada lovelace"}

    given = resolve_arguments(inputs, None, {}, SECRETS.__getitem__, secrets=[["p"]], redact=["iban"])

    text = f"{HUNTER} swordfish DE0012 ada lovelace"
    assert given.text_redactor.redact_text(text) == f"{REDACTED} {REDACTED} {REDACTED} ada lovelace"
    assert given.output_redactor.redact_text(text) == f"{REDACTED} swordfish DE0012 ada lovelace"


def run(executor: Any, step: Json) -> Workflow:
    workflow = Workflow.from_dict({"steps": [step]}, Backend({"f": executor}))
    workflow.run()
    return workflow


def test_in_one_process_an_executor_gets_texts_and_they_do_not_come_back() -> None:
    seen: list[Any] = []

    def call(inputs: Json, configuration: Json) -> Json:
        seen.append((inputs, configuration))
        return {
            "echo": inputs["password"],
            HUNTER: [configuration["header"]],
            "size": len(inputs["password"]),
        }

    configuration = {"header": {"cat": ["Bearer ", {"secret": "api.token"}]}}
    source = {"type": "f", "configuration": configuration}
    workflow = run(call, {"id": "s", "source": source, "input": {"password": DB}})

    assert seen == [({"password": HUNTER}, {"header": "Bearer t0p/s3cret"})]
    assert workflow.state == {"echo": REDACTED, REDACTED: [f"Bearer {REDACTED}"], "size": len(HUNTER)}
    assert HUNTER not in str(workflow.backend.load(workflow.id)) + str(workflow.history)


def test_in_one_process_a_secret_that_is_not_there_fails_the_step_and_is_not_tried_again() -> None:
    calls: list[Json] = []

    workflow = run(calls.append, {"op": "f", "input": {"a": {"secret": "not-there"}}, "retry": 3})

    assert calls == []
    assert workflow.error == {
        "kind": "refused",
        "type": "SecretNotFound",
        "message": "this worker has no secret 'not-there': searched in ORCHESTRATOR_SECRET_NOT_THERE",
        "step": "f",
    }


def test_a_workflow_test_has_a_secret_of_each_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{SECRET_PREFIX}DB", HUNTER)
    test = WorkflowTest({"steps": [{"op": "f", "input": {"a": DB, "b": {"secret": "nowhere"}}}]})
    seen: list[Json] = []

    def answer(inputs: Json) -> Json:
        seen.append({**inputs})
        return {"b": inputs["b"]}

    test.mock("f", answer)

    test.run()

    assert seen == [{"a": HUNTER, "b": "secret:nowhere"}]
    assert test.calls("f") == [{"a": DB, "b": {"secret": "nowhere"}}]
    assert test.record.state == {"b": REDACTED}


# ---- where a worker finds them


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "secrets"
    made.mkdir()
    return made


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("vault_of_the_test")
    monkeypatch.setitem(__import__("sys").modules, "vault_of_the_test", module)
    return module


@pytest.mark.parametrize(("name", "variable"), [("db", "DB"), ("api.token", "API_TOKEN"), ("a-b_c", "A_B_C")])
def test_a_variable_has_the_name_in_capitals(name: str, variable: str) -> None:
    assert variable_of(name) == f"ORCHESTRATOR_SECRET_{variable}"
    assert read_secret(name, {variable_of(name): HUNTER}) == HUNTER


def test_the_environment_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Settings.from_environment().environment

    monkeypatch.setenv("ORCHESTRATOR_SECRET_DB", "first")
    assert read_secret("db", environment) == "first"
    monkeypatch.setenv("ORCHESTRATOR_SECRET_DB", "second")
    assert read_secret("db", environment) == "second"


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"hunter2", "hunter2"),
        (b"hunter2\n", "hunter2"),
        (b"a\n\n", "a\n"),
        (b"a\r\n", "a"),
        ("ü".encode(), "ü"),
    ],
)
def test_a_file_has_the_value_and_perhaps_a_newline(folder: Path, content: bytes, value: str) -> None:
    (folder / "db").write_bytes(content)

    assert read_secret("db", {FOLDER_VARIABLE: str(folder)}) == value


def test_a_file_may_be_a_link_inside_of_its_folder(folder: Path) -> None:
    (folder / "..data").mkdir()
    (folder / "..data" / "db").write_text("hunter2")
    (folder / "db").symlink_to("..data/db")

    assert read_secret("db", {FOLDER_VARIABLE: str(folder)}) == "hunter2"


def test_the_first_place_that_has_a_secret_is_used(folder: Path, provider: ModuleType) -> None:
    found: dict[str, str | None] = {"db": "of the provider"}
    provider.find = found.get  # type: ignore[attr-defined]
    (folder / "db").write_text("of the file")
    environment = {
        PROVIDER_VARIABLE: "vault_of_the_test:find",
        FOLDER_VARIABLE: str(folder),
        f"{SECRET_PREFIX}DB": "of the variable",
    }

    read = [read_secret("db", environment)]
    found["db"] = None
    read.append(read_secret("db", environment))
    (folder / "db").write_text("\n")
    read.append(read_secret("db", environment))

    assert read == ["of the provider", "of the file", "of the variable"]


def rejection(name: str, environment: Json) -> str:
    with pytest.raises(SecretNotFound) as refused:
        read_secret(name, environment)
    assert isinstance(refused.value, RejectedByWorker)
    return str(refused.value)


def test_a_missing_secret_names_all_places_that_were_searched(folder: Path, provider: ModuleType) -> None:
    provider.find = lambda name: None  # type: ignore[attr-defined]

    assert rejection("db", {}) == "this worker has no secret 'db': searched in ORCHESTRATOR_SECRET_DB"
    environment = {
        PROVIDER_VARIABLE: "vault_of_the_test:find",
        FOLDER_VARIABLE: str(folder),
        f"{SECRET_PREFIX}DB": "",
    }
    assert rejection("db", environment) == (
        "this worker has no secret 'db': searched in ORCHESTRATOR_SECRETS_PROVIDER (vault_of_the_test:find)"
        f", ORCHESTRATOR_SECRETS_DIR ({folder}), ORCHESTRATOR_SECRET_DB"
    )


@pytest.mark.parametrize("name", ["../db", "..", ".", "a/b", "", "x" * 200])
def test_a_job_cannot_read_a_file_by_a_wrong_name(folder: Path, name: str) -> None:
    (folder.parent / "db").write_text("hunter2")

    assert "must be the name of a secret" in rejection(name, {FOLDER_VARIABLE: str(folder)})


def test_unreadable_files_are_reported_and_the_next_place_is_not_searched(folder: Path) -> None:
    environment = {FOLDER_VARIABLE: str(folder), f"{SECRET_PREFIX}DB": HUNTER}
    outside = folder.parent / "outside"
    outside.write_text("hunter2")

    (folder / "db").symlink_to(outside)
    assert "to a file outside of the folder" in rejection("db", environment)
    (folder / "db").unlink()
    (folder / "db").symlink_to(folder / "nowhere")
    assert "is not a file" in rejection("db", environment)
    (folder / "db").unlink()
    (folder / "db").mkdir()
    assert "is not a file" in rejection("db", environment)
    (folder / "db").rmdir()
    (folder / "db").write_bytes(b"x" * (MAX_SECRET_BYTES + 1))
    assert "more than 65,536 bytes" in rejection("db", environment)
    (folder / "db").write_bytes(b"\xff\xfehunter2")
    assert "is not UTF-8" in rejection("db", environment)
    assert "hunter2" not in rejection("db", environment)


def test_a_file_without_permission_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "db").write_text("hunter2")

    def refuse(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)

    assert "cannot be read: Permission denied" in rejection("db", {FOLDER_VARIABLE: str(folder)})


@pytest.mark.parametrize(
    "named", ["vault_of_the_test", "vault_of_the_test:nothing", "no_such_module:f", ":", "a b:c"]
)
def test_a_missing_provider_is_reported(provider: ModuleType, named: str) -> None:
    assert f"({named}) cannot be loaded (" in rejection("db", {PROVIDER_VARIABLE: named})


def test_a_provider_must_be_a_function_that_returns_texts(provider: ModuleType) -> None:
    provider.find, provider.number = (lambda name: {"value": HUNTER}), 3  # type: ignore[attr-defined]

    told = rejection("db", {PROVIDER_VARIABLE: "vault_of_the_test:find"})

    assert "returned dict instead of a text" in told
    assert HUNTER not in told
    assert "is not a function" in rejection("db", {PROVIDER_VARIABLE: "vault_of_the_test:number"})


def test_a_failure_of_the_provider_is_retried_and_its_message_is_not_shown(provider: ModuleType) -> None:
    def find(name: str) -> str:
        raise ConnectionError(f"the vault refuses {HUNTER}")

    provider.find = find  # type: ignore[attr-defined]

    with pytest.raises(SecretUnavailable) as failed:
        read_secret("db", {PROVIDER_VARIABLE: "vault_of_the_test:find"})

    assert str(failed.value) == (
        "the secret 'db' is not available now: ORCHESTRATOR_SECRETS_PROVIDER (vault_of_the_test:find)"
        " raised ConnectionError"
    )
    assert not isinstance(failed.value, RejectedByWorker)
    assert failed.value.__suppress_context__


# ---- in Python


def test_the_builder_writes_references() -> None:
    flow = WorkflowBuilder()
    api = flow.source("api", "http", {"header": op.cat("Bearer ", secret("api.token"))})
    flow.step("s", source=api, input={"password": secret("db"), "quoted": literal(DB)})

    document = flow.to_dict()

    assert document["sources"]["api"]["configuration"] == {
        "header": {"cat": ["Bearer ", {"secret": "api.token"}]}
    }
    assert document["steps"][0]["input"] == {"password": DB, "quoted": {"$literal": DB}}
    assert check_spec(document).spec.steps[0].secrets == (("password",),)


def test_the_builder_refuses_what_would_be_read_as_one() -> None:
    flow = WorkflowBuilder()

    with pytest.raises(InvalidSpec, match=r"would be read as a secret; write secret\(\.\.\.\)"):
        flow.step("s", fn="f", input={"body": {"secret": "of our own"}})
    with pytest.raises(InvalidSpec, match="must be the name of a secret"):
        secret("../x")
