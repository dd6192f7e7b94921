"""invoke(): the order of its checks, and the failure for each thing that can go wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest

from orchestrator.application.errors import ExecutorNotFound, SecretNotFound, SecretUnavailable
from orchestrator.application.records.events import make_failure
from orchestrator.application.redaction.by_key import REDACTED
from orchestrator.invocation.invoke import Call, Failure, Result, invoke
from orchestrator.settings import Settings

Json = dict[str, Any]


class Stop(BaseException):
    """Ends the worker."""


class OneCall(Call):
    """A call of one function, which notes everything that the hooks get."""

    step_id, fn, source, heartbeat_s = "s", "f", None, None
    secrets, redact, max_output_bytes = (), (), 100
    timeout_errors = (TimeoutError,)

    def __init__(
        self, executor: Callable[..., Any] | None, inputs: Json | None = None, **changed: Any
    ) -> None:
        self._executor, self._inputs = executor, inputs or {}
        self.noted: list[str] = []
        vars(self).update({"settings": Settings(environment={}), **changed})

    def find_executor(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if self._executor is None:
            raise ExecutorNotFound(self.fn, ["g"])
        return self._executor, ()

    def load_inputs(self) -> tuple[Json, Failure | None]:
        self.noted.append("load")
        return self._inputs, None

    def read_secret(self, name: str) -> str:
        return f"{name}-value"

    def clock(self) -> float:
        return 7.0

    def build_context(self) -> Json:
        return {"step": self.step_id}

    def log(self, text: str) -> None:
        self.noted.append(f"log {text}")

    def log_heartbeat(self, text: str) -> None:
        self.noted.append(f"heartbeat {text}")

    def keep_note(self, text: str) -> None:
        self.noted.append(f"note {text}")

    @contextmanager
    def watch(self, heartbeat: Any) -> Any:
        self.noted.append("watch" if heartbeat is None else f"watch at {heartbeat.at}")
        yield
        self.noted.append("end of watch")

    def is_fatal(self, error: BaseException) -> bool:
        return isinstance(error, Stop)

    def after_call(self) -> None:
        self.noted.append("after the call")

    def offload(self, text: str) -> Result:
        return None, make_failure("bad_output", f"{len(text)} characters")


def raising(error: BaseException) -> Callable[[Json], Any]:
    def executor(inputs: Json) -> Any:
        raise error

    return executor


class Hoard(dict[str, Any]):
    """An output that needs too much memory when it is encoded."""

    def items(self) -> Any:
        raise MemoryError


def hoard(inputs: Json) -> Json:
    return {"a": Hoard(b=1)}


def too_large(inputs: Json) -> Json:
    return {"a": "x" * 200}


class FullCall(OneCall):
    """A call in a process that has no memory left for a large output."""

    def offload(self, text: str) -> Result:
        raise MemoryError

    def explain_memory_error(self) -> str:
        return "it may use 7 MB"


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        (raising(MemoryError()), "MemoryError: it may use 7 MB"),
        (raising(MemoryError("cannot allocate 8 GB")), "cannot allocate 8 GB: it may use 7 MB"),
        (hoard, "MemoryError: it may use 7 MB"),
        (too_large, "MemoryError: it may use 7 MB"),
    ],
    ids=["raised", "raised with a message", "while its output is encoded", "while its output is stored"],
)
def test_a_memory_error_names_the_limit_and_is_no_bad_output(
    executor: Callable[[Json], Any], message: str
) -> None:
    output, failure = invoke(FullCall(executor))

    assert output is None
    assert failure is not None
    assert (failure["kind"], failure["type"], failure["message"]) == ("exception", "MemoryError", message)


def test_the_output_is_json_text() -> None:
    call = OneCall(lambda inputs: {"n": inputs["n"] + 1}, {"n": 1})

    assert invoke(call) == ('{"n":2}', None)
    assert call.noted == ["load", "watch", "end of watch", "after the call"]


def test_requested_parameters_are_passed_and_their_texts_are_redacted() -> None:
    def executor(inputs: Json, heartbeat: Any, log: Any, context: Any, cancelled: Any) -> Json:
        heartbeat(0.5, inputs["password"])
        log(f"with {inputs['password']}")
        return {"context": context, "cancelled": cancelled(), "password": inputs["password"]}

    call = OneCall(executor, {"password": {"secret": "db"}}, secrets=[("password",)])

    text, failure = invoke(call)

    assert (text, failure) == (
        f'{{"context":{{"step":"s"}},"cancelled":false,"password":"{REDACTED}"}}',
        None,
    )
    assert call.noted == [
        "load",
        "watch at 7.0",
        f"heartbeat 0.5: {REDACTED}",
        f"note 0.5: {REDACTED}",
        f"log with {REDACTED}",
        "end of watch",
        "after the call",
    ]


def test_the_executor_is_found_and_checked_before_its_inputs_are_loaded() -> None:
    missing, silent = OneCall(None), OneCall(lambda inputs: None, heartbeat_s=1.0)

    failures = [invoke(call)[1] or {} for call in (missing, silent)]

    assert [failure["type"] for failure in failures] == ["ExecutorNotFound", "HeartbeatMissing"]
    assert {failure["kind"] for failure in failures} == {"exception"}
    assert (missing.noted, silent.noted) == ([], [])


def test_inputs_that_cannot_be_loaded_are_the_failure() -> None:
    call = OneCall(lambda inputs: None, load_inputs=lambda: ({}, make_failure("payload_missing", "gone")))

    assert invoke(call) == (None, {"kind": "payload_missing", "message": "gone"})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SecretNotFound("db", "searched in nothing"), "refused"),
        (SecretUnavailable("db", "vault", ValueError()), "exception"),
    ],
)
def test_a_secret_that_cannot_be_read_is_a_failure(error: Exception, kind: str) -> None:
    def read_secret(name: str) -> str:
        raise error

    call = OneCall(lambda inputs: None, {"a": {"secret": "db"}}, secrets=[("a",)], read_secret=read_secret)

    assert invoke(call) == (None, {"kind": kind, "message": str(error), "type": type(error).__name__})


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ValueError("no"), "exception"), (SystemExit("no"), "exception"), (TimeoutError("no"), "timeout")],
)
def test_an_exception_of_the_executor_is_the_failure(error: BaseException, kind: str) -> None:
    call = OneCall(raising(error))

    text, failure = invoke(call)

    assert (text, (failure or {})["kind"], (failure or {})["message"]) == (None, kind, "no")
    assert call.noted == ["load", "watch", "after the call"]


def test_a_fatal_exception_ends_the_worker() -> None:
    call = OneCall(raising(Stop()))

    with pytest.raises(Stop):
        invoke(call)

    assert call.noted[-1] == "after the call"


def test_a_fatal_exception_while_the_output_is_encoded_ends_the_worker() -> None:
    class Hostile(dict[str, Any]):
        def items(self) -> Any:
            raise Stop

    with pytest.raises(Stop):
        invoke(OneCall(lambda inputs: Hostile(a=1)))


def test_an_output_that_is_not_json_is_a_bad_output() -> None:
    _, failure = invoke(OneCall(lambda inputs: {1, 2}))

    assert failure == {
        "kind": "bad_output",
        "message": "the output is not JSON: Object of type set is not JSON serializable",
        "type": "TypeError",
    }


@pytest.mark.parametrize("text", ["\ud83d", "ž\udc00"])
def test_half_a_surrogate_pair_is_a_bad_output(text: str) -> None:
    _, failure = invoke(OneCall(lambda inputs: text))

    assert (failure or {})["kind"] == "bad_output"


@pytest.mark.parametrize(
    ("output", "is_offloaded"), [("x" * 98, False), ("x" * 99, True), ("ž" * 49, False), ("ž" * 50, True)]
)
def test_an_output_is_offloaded_by_its_size_in_bytes(output: str, is_offloaded: bool) -> None:
    text, failure = invoke(OneCall(lambda inputs: output))

    assert (text is None, failure is not None) == (is_offloaded, is_offloaded)
