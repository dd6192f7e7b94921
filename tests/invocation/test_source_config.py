"""Sources: what a worker makes of the configuration that a job carries."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.errors import BadConfiguration, VariableRefused
from orchestrator.application.redaction.by_key import REDACTED
from orchestrator.application.spec.model import StepSpec
from orchestrator.application.spec.validation import check_spec
from orchestrator.backend.backend import Backend
from orchestrator.invocation.arguments import CallArguments, resolve_arguments
from orchestrator.invocation.source_config import ENV_ALLOWLIST_VARIABLE
from orchestrator.local.workflow import Workflow

Json = dict[str, Any]

SECRETS: Json = {"type": "env", "configuration": {"vars": ["TOKEN", "USER"]}}
API: Json = {"type": "http", "configuration": {"url": "u", "retries": {"most": 2}}}
TOKEN = {"var": "sources.secrets.TOKEN"}


def loaded(source: Any, **sources: Json) -> StepSpec:
    """A step with this source, beside sources called secrets and api."""
    document = {
        "sources": {"secrets": SECRETS, "api": API, **sources},
        "steps": [{"id": "s", "source": source}],
    }
    return check_spec(document).spec.steps[0]


def configured(**configuration: Any) -> Json | None:
    return loaded({"type": "http", "configuration": configuration}).source


# ---- what a worker makes of it

ENVIRONMENT = {
    "TOKEN": "s3cret-token",
    "USER": "ada",
    "OTHER": "never asked for",
    ENV_ALLOWLIST_VARIABLE: "TOKEN, USER",
}


def given(source: Json | None, environment: Json = ENVIRONMENT) -> CallArguments:
    def no_secrets(name: str) -> str:
        raise LookupError(name)

    return resolve_arguments({}, source, environment, no_secrets)


def test_a_step_without_a_source_has_an_empty_configuration() -> None:
    assert given(None).configuration == {}


def test_a_configuration_without_expressions_is_taken_as_it_is() -> None:
    assert given(API).configuration == API["configuration"]


def test_expressions_read_the_environment_of_the_worker() -> None:
    source = configured(
        header={"cat": ["Bearer ", TOKEN]},
        user={"var": "sources.secrets.USER"},
        all={"var": "sources.secrets"},
        fixed={"$literal": TOKEN},
        max=3,
    )

    assert given(source).configuration == {
        "header": "Bearer s3cret-token",
        "user": "ada",
        "all": {"TOKEN": "s3cret-token", "USER": "ada"},
        "fixed": TOKEN,
        "max": 3,
    }


def test_a_variable_that_is_not_set_is_null() -> None:
    source = configured(token=TOKEN, user={"var": ["sources.secrets.USER", "none"]})

    assert given(source, {ENV_ALLOWLIST_VARIABLE: "*"}).configuration == {"token": None, "user": None}


def test_the_name_of_a_source_may_have_dots() -> None:
    source: Json = {
        "configuration": {
            "a": {"var": "sources.my.env.X"},
            "b": {"vars": "sources.my.env.X"},
            "c": {"var": "sources.no.X"},
        },
        "sources": {"my": ["env"], "my.env": ["X"]},
    }

    assert given(source, {"X": "1", ENV_ALLOWLIST_VARIABLE: "env,X"}).configuration == {
        "a": "1",
        "b": ["1"],
        "c": None,
    }


def test_what_cannot_be_evaluated_names_its_key_and_no_value() -> None:
    source = configured(fine=1, count={"+": [TOKEN, 1]})

    with pytest.raises(BadConfiguration) as refused:
        given(source)

    assert "on this worker: count" in str(refused.value)
    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


@pytest.mark.parametrize(
    "allowed", ["", "USER", "TOKE, token, *_TOKEN, TOKENS", "TOKEN USER", "[TU]*, ?SER, TOK?N"]
)
def test_a_variable_that_a_worker_does_not_allow_is_not_read(allowed: str) -> None:
    source = configured(token=TOKEN)

    with pytest.raises(VariableRefused) as refused:
        given(source, {**ENVIRONMENT, ENV_ALLOWLIST_VARIABLE: allowed})

    assert "'USER'" in str(refused.value) or "'TOKEN'" in str(refused.value)
    assert ENV_ALLOWLIST_VARIABLE in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_variable_that_is_named_like_a_secret_is_redacted_whatever_read_it() -> None:
    environment = {
        "API_TOKEN": "s3cret-token",
        "API_USER": "ada-l",
        "MY_TOKEN": "t0ken",
        ENV_ALLOWLIST_VARIABLE: "API_*",
    }

    found = given(None, environment)

    assert found.output_redactor.redact_value({"said": "s3cret-token ada-l t0ken"}) == {
        "said": "<redacted> ada-l t0ken"
    }
    assert found.text_redactor.redact_text("s3cret-token ada-l t0ken") == "<redacted> ada-l t0ken"


def test_where_no_variable_may_be_read_nothing_is_hidden_for_it() -> None:
    assert not given(None, {"API_TOKEN": "s3cret-token"}).output_redactor


@pytest.mark.parametrize("allowed", ["TOKEN,USER", "*", "TOK*, *SER ", "USER,T*N"])
def test_a_worker_allows_variables_by_name_and_by_pattern(allowed: str) -> None:
    found = given(configured(token=TOKEN), {**ENVIRONMENT, ENV_ALLOWLIST_VARIABLE: allowed})

    assert found.configuration == {"token": "s3cret-token"}


def test_a_worker_that_allows_nothing_still_configures_sources_that_read_nothing() -> None:
    assert given(configured(joined={"cat": ["a", "b"]}), {}).configuration == {"joined": "ab"}


def test_what_was_read_is_hidden_from_texts_and_if_it_is_called_like_a_secret_from_outputs() -> None:
    found = given(configured(all={"var": "sources.secrets"}), {**ENVIRONMENT, "USER": "ada.lovelace"})

    assert found.text_redactor.redact_text("s3cret-token of ada.lovelace") == f"{REDACTED} of {REDACTED}"
    assert found.output_redactor.redact_text("s3cret-token of ada.lovelace") == f"{REDACTED} of ada.lovelace"


# ---- in one process


def run(execute: Any, monkeypatch: pytest.MonkeyPatch, **configuration: Any) -> Workflow:
    monkeypatch.setenv("TOKEN", "s3cret-token")
    monkeypatch.setenv(ENV_ALLOWLIST_VARIABLE, "TOKEN, USER")
    document = {
        "sources": {"secrets": SECRETS, "api": {"type": "call", "configuration": configuration}},
        "steps": [{"id": "s", "source": "api", "input": {"x": 1}}],
    }
    workflow = Workflow.from_dict(document, Backend(execute))
    workflow.run()
    return workflow


def test_an_executor_is_called_with_the_configuration_of_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(inputs: Json, configuration: Json) -> Json:
        return {"size": len(configuration["token"]), **inputs}

    workflow = run({"call": call}, monkeypatch, token=TOKEN)

    assert workflow.state == {"size": 12, "x": 1}


def test_an_executor_may_change_its_configuration_without_effect_on_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Json] = []

    def call(inputs: Json, configuration: Json) -> None:
        seen.append({**configuration})
        configuration["deep"]["list"].append(2)
        configuration.clear()
        raise ValueError("again")

    document = {
        "steps": [
            {
                "id": "s",
                "max_attempts": 2,
                "source": {"type": "call", "configuration": {"deep": {"list": [1]}}},
            }
        ]
    }
    Workflow.from_dict(document, Backend({"call": call})).run()

    assert len(seen) == 2
    assert document["steps"][0]["source"] == {"type": "call", "configuration": {"deep": {"list": [1]}}}


def test_an_executor_that_takes_no_configuration_fails_and_is_told_how(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workflow = run({"call": lambda inputs: {}}, monkeypatch, url="u")

    assert workflow.error == {
        "kind": "exception",
        "type": "ConfigurationMissing",
        "message": "the source of step 's' has a configuration, but its executor 'call' takes no parameter"
        " called configuration: write def call(inputs, configuration)",
        "step": "s",
    }


def test_an_empty_configuration_need_not_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run({"call": lambda inputs: inputs}, monkeypatch).state == {"x": 1}


def test_a_configuration_that_cannot_be_evaluated_is_a_failure_that_is_not_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workflow = run({"call": lambda inputs, configuration: {}}, monkeypatch, count={"+": [TOKEN, 1]})

    assert workflow.error is not None
    assert workflow.error["kind"] == "expression"
    assert "s3cret" not in str(workflow.error)


def fails(inputs: Json, configuration: Json) -> Any:
    raise ConnectionError(f"401 for {configuration['token']}")


def unspeakable(inputs: Json, configuration: Json) -> Any:
    class Loud:
        def __repr__(self) -> str:
            return str(configuration["token"])

    return {Loud(): 1}


@pytest.mark.parametrize("execute", [fails, unspeakable])
def test_values_of_the_environment_are_redacted_in_errors(
    execute: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = run({"call": execute}, monkeypatch, token=TOKEN)

    assert workflow.error is not None
    assert "s3cret" not in str(workflow.backend.history(workflow.id)) + str(workflow.error)


def test_the_message_of_an_error_keeps_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = run({"call": fails}, monkeypatch, token=TOKEN)

    assert workflow.error is not None
    assert workflow.error["message"] == f"401 for {REDACTED}"
