"""Every old public name still works for one release, with a DeprecationWarning that gives the new name.

The lists are literal: they are what each package exported before the names changed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from redis import Redis

from orchestrator.client import BulkResult, Client
from orchestrator.client.replies import Replies
from orchestrator.deprecation import renamed_arguments, renamed_names
from orchestrator.diagnosis import ProcessFilter, health
from orchestrator.redis_rq.keys import Keys

ROOT = Path(__file__).parents[2]

OLD_EXPORTS: Mapping[str, str] = MappingProxyType(
    {
        "orchestrator": """
            Backend Cancelled Complete Dispatch DispatchJob ExecutorNotFound ExpressionError Failed Halt
            IllegalTransition InvalidEvent InvalidSpec OrchestratorError Pending Problem RecordConflict
            RecordExists RecordNotFound StartRefused StateChangeEvent StepStatus StoreError Workflow
            WorkflowBuilder WorkflowStatus __version__ load_spec
        """,
        "orchestrator.client": """
            Answered Bulk Client ControlRefused ExecutionFailed Filter Forgotten NoAnswer Page StartOptions
            Started StillRunning Summary
        """,
        "orchestrator.backend": """
            Backend InMemoryStore InProcessRunner InProcessWorker Runner SqliteRunner SqliteStore StepRecord
            Store WorkflowRecord
        """,
        "orchestrator.builder": """
            Branch Expr Json Reference Source Step Value WorkflowBuilder complete ctx fail halt index input_
            item kv literal op output raw ref render reset result retry secret skip sources state when
        """,
        "orchestrator.testing": """
            POINTS Call Execution Kill Mock MockMissing NoEnd Rehearsal RehearsalError Step Wait rehearse
        """,
        "orchestrator.diagnosis": """
            Check Health Level UnknownStep Whose Why examine health why
        """,
    }
)

RENAMED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "orchestrator": {"StartRefused": "StartRejected"},
        "orchestrator.client": {
            "Answered": "ControlResult",
            "Bulk": "BulkResult",
            "ControlRefused": "ControlRejected",
            "Filter": "ExecutionFilter",
            "Forgotten": "RequestLost",
            "NoAnswer": "NoReply",
            "Started": "StartResult",
        },
        "orchestrator.testing": {
            "NoEnd": "CallLimitReached",
            "POINTS": "KILL_POINTS",
            "Rehearsal": "WorkflowTest",
            "RehearsalError": "WorkflowTestError",
            "rehearse": "WorkflowTest",
        },
        "orchestrator.diagnosis": {"Whose": "ProcessFilter", "Why": "Explanation", "examine": "run_checks"},
    }
)


def renamed() -> list[tuple[str, str, str]]:
    return [(module, old, new) for module, names in RENAMED.items() for old, new in names.items()]


@pytest.mark.parametrize("module", OLD_EXPORTS)
def test_every_name_that_was_exported_before_still_imports(module: str) -> None:
    package = import_module(module)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        missing = [name for name in OLD_EXPORTS[module].split() if not hasattr(package, name)]

    assert missing == []


@pytest.mark.parametrize(("module", "old", "new"), renamed())
def test_an_old_name_is_the_new_object_and_warns(module: str, old: str, new: str) -> None:
    package = import_module(module)

    with pytest.warns(
        DeprecationWarning, match=rf"^{re.escape(module)}\.{old} is deprecated; use .*\b{new}$"
    ):
        found = getattr(package, old)

    assert found is getattr(package, new)
    assert old not in package.__all__
    assert new in package.__all__


def test_an_old_name_can_be_imported_by_its_name() -> None:
    with pytest.warns(DeprecationWarning, match="ControlRefused is deprecated"):
        from orchestrator.client import ControlRefused

    assert ControlRefused.__name__ == "ControlRejected"


@pytest.mark.parametrize("module", OLD_EXPORTS)
def test_names_that_did_not_change_import_without_a_warning(module: str) -> None:
    package = import_module(module)

    for name in {*OLD_EXPORTS[module].split()} - {*RENAMED.get(module, {})}:
        assert hasattr(package, name)
    with pytest.raises(AttributeError, match="has no attribute 'never_there'"):
        package.never_there  # noqa: B018


def test_every_package_that_has_old_names_is_tested() -> None:
    files = [
        path for path in (ROOT / "orchestrator").rglob("__init__.py") if "renamed_names(" in path.read_text()
    ]

    assert {".".join(path.parent.relative_to(ROOT).parts) for path in files} == {*RENAMED}


# ---- attributes and arguments


class _Replies(Replies):
    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []

    def wait(self, name: str, timeout_s: float, *_: Any) -> dict[str, Any]:
        self.asked.append((name, timeout_s))
        return {"ok": True, "workflow_execution_id": "w#x", "execution_id": "x", "kept": True}


@pytest.fixture
def client(redis_client: Redis) -> tuple[Client, _Replies]:
    client, replies = Client(redis_client), _Replies()
    client._replies = client._controls._replies = replies
    return client, replies


def test_the_old_name_of_wait_for_reply_and_of_its_timeout_still_work(
    client: tuple[Client, _Replies],
) -> None:
    one, replies = client

    with pytest.warns(DeprecationWarning, match=r"Client\.answer is deprecated; use Client\.wait_for_reply"):
        answer = one.answer
    with pytest.warns(
        DeprecationWarning, match=r"within_s of wait_for_reply\(\) is deprecated; use timeout_s"
    ):
        assert answer("1-0", within_s=3)["ok"]

    assert replies.asked == [("1-0", 3)]


def test_the_old_name_of_the_reply_timeout_still_works(client: tuple[Client, _Replies]) -> None:
    one, replies = client
    spec: dict[str, Any] = {"steps": [{"op": "a"}]}
    old: dict[str, Any] = {"answer_within_s": 7}

    with pytest.warns(
        DeprecationWarning, match=r"answer_within_s of start\(\) is deprecated; use reply_timeout_s"
    ):
        one.start(spec, **old)
    with pytest.warns(DeprecationWarning, match=r"answer_within_s of signal\(\) is deprecated"):
        one.signal("x", "go", **old)

    assert [timeout_s for _, timeout_s in replies.asked] == [7, 7]


def test_the_old_name_of_the_step_log_still_works(client: tuple[Client, _Replies]) -> None:
    one, _ = client

    with pytest.warns(DeprecationWarning, match=r"Client\.lines is deprecated; use Client\.step_log"):
        assert one.lines == one.step_log


def test_the_old_name_of_rejected_executions_still_works() -> None:
    bulk = BulkResult(rejected={"w#x": "it is complete"})

    with pytest.warns(
        DeprecationWarning, match=r"BulkResult\.refused is deprecated; use BulkResult\.rejected"
    ):
        assert bulk.refused is bulk.rejected


def test_the_old_names_of_a_process_filter_still_work(redis_client: Redis) -> None:
    one, old = ProcessFilter(name="box-7"), {"whose": ProcessFilter(name="box-7")}

    with pytest.warns(
        DeprecationWarning, match=r"ProcessFilter\.are is deprecated; use ProcessFilter\.matches"
    ):
        assert one.are("box-7-ab12")
    with pytest.warns(DeprecationWarning, match=r"whose of health\(\) is deprecated; use process_filter"):
        found = health(redis_client, Keys(), "coordinator", **old)  # type: ignore[arg-type]

    assert found.words == "no coordinator found with the name box-7"


def test_a_name_that_moved_to_another_package_is_found_there() -> None:
    find = renamed_names("orchestrator.client", {"Old": "orchestrator.backend:Store"})

    with pytest.warns(
        DeprecationWarning, match=r"^orchestrator\.client\.Old is deprecated; use orchestrator\.backend"
    ):
        assert find("Old") is import_module("orchestrator.backend").Store


def test_new_argument_names_do_not_warn() -> None:
    @renamed_arguments(old="new")
    def double(new: int) -> int:
        return 2 * new

    assert (double(1), double(new=2), double.__name__) == (2, 4, "double")
