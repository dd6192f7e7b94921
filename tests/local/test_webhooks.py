"""Webhooks without Redis: run() attempts what is due, and does not wait for later attempts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Backend, Workflow
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.decisions import Cancelled, Complete, DispatchJob
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from orchestrator.backend.memory import InMemoryStore, InProcessRunner
from orchestrator.backend.ports import Store
from orchestrator.backend.results import ResultPairs
from orchestrator.backend.sqlite.store import SqliteStore
from orchestrator.testing import KILL_POINTS, WorkflowTest
from worlds.documents import document, step

Json = dict[str, Any]
URL = "https://hooks.example.org/ended"
SPEC = document(step("a"), outputs={"n": {"var": "steps.a.output.n"}}, webhook={"url": URL}, name="shop")
START_MS = 1_800_000_000_000


class Clock:
    def __init__(self) -> None:
        self.at_ms = START_MS

    def __call__(self) -> int:
        return self.at_ms


class Hooks:
    """An executor `webhook` that keeps what it was given, and fails as often as it is told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures, self.calls = failures, list[Json]()

    def __call__(self, inputs: Json, context: Json) -> Json:
        self.calls.append({**inputs["body"], "key": context["idempotency_key"]})
        if len(self.calls) <= self.failures:
            raise ConnectionError("no receiver")
        return {"status": 200}


def backend_with(hooks: Hooks | None, store: Store | None = None, **keys: Any) -> Backend:
    executors: Json = {"a": lambda inputs: {"n": 1}, **({"webhook": hooks} if hooks else {})}
    return Backend(executors, store=store, **keys)


def webhook(workflow: Workflow) -> StepRecord:
    return workflow.backend.load(workflow.id).items[WEBHOOK_UNIT]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return InMemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "db")


def test_run_returns_when_the_webhook_is_delivered(store: Store) -> None:
    hooks = Hooks()
    workflow = Workflow.from_dict(SPEC, backend_with(hooks, store))

    assert workflow.run() == Complete({"n": 1})

    [call] = hooks.calls
    execution_id = workflow.id.partition("#")[2]
    assert (call["status"], call["outcome"], call["workflow"]) == ("complete", {"n": 1}, "shop")
    assert (call["execution_id"], call["key"]) == (execution_id, f"{execution_id}#webhook#0")
    assert (webhook(workflow).status, webhook(workflow).output) == ("complete", {"status": 200})
    assert [entry["to"] for entry in workflow.history if entry.get("step") == WEBHOOK_UNIT] == [
        "in_progress",
        "complete",
    ]


def test_a_failed_webhook_is_attempted_again_by_the_next_run_when_it_is_due(store: Store) -> None:
    hooks, clock = Hooks(failures=1), Clock()
    workflow = Workflow.from_dict(SPEC, backend_with(hooks, store, clock=clock))

    assert workflow.run() == Complete({"n": 1})
    assert (webhook(workflow).status, len(hooks.calls)) == ("retry", 1)
    assert workflow.run() == Complete({"n": 1})
    assert len(hooks.calls) == 1, "it is not due"
    clock.at_ms += 2_000
    assert workflow.run() == Complete({"n": 1})

    assert (webhook(workflow).status, len(hooks.calls)) == ("complete", 2)
    assert workflow.run() == Complete({"n": 1})
    assert len(hooks.calls) == 2


def test_the_built_in_webhook_posts_only_to_hosts_that_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORCHESTRATOR_WEBHOOK_HOSTS", raising=False)
    workflow = Workflow.from_dict(SPEC, backend_with(None))

    assert workflow.run() == Complete({"n": 1})

    error = webhook(workflow).error
    assert error is not None
    assert (webhook(workflow).status, error["kind"]) == ("failed", "refused")
    assert "ORCHESTRATOR_WEBHOOK_HOSTS is not set" in error["message"]


def test_without_a_worker_the_job_is_left_to_workers_elsewhere() -> None:
    backend = Backend()
    workflow = Workflow(backend.create(SPEC), backend)
    workflow.cancel("before it began")

    assert workflow.run() == Cancelled("before it began")

    [job] = backend.list_pending_jobs()
    assert (job.step_id, job.inputs["body"]["status"]) == (WEBHOOK_UNIT, "cancelled")


def test_the_next_process_delivers_the_events_that_another_left_undelivered(tmp_path: Path) -> None:
    first = Backend(store=SqliteStore(tmp_path / "db"), clock=Clock())
    weid = first.create(SPEC)
    Workflow(weid, first).cancel()
    hooks = Hooks()
    later = Clock()
    later.at_ms += 60_000

    Workflow.resume(weid, backend_with(hooks, SqliteStore(tmp_path / "db"), clock=later)).run()

    assert [(call["status"], call["key"]) for call in hooks.calls] == [
        ("cancelled", f"{weid.partition('#')[2]}#webhook#0")
    ]


def test_the_webhook_of_a_start_is_kept_in_the_file(tmp_path: Path) -> None:
    given = {"url": "https://other.example.org", "on": ["failed"]}

    weid = Backend(store=SqliteStore(tmp_path / "db")).create(SPEC, webhook=given)

    assert Backend(store=SqliteStore(tmp_path / "db")).load(weid).webhook == {**given, "headers": {}}


def test_a_start_with_a_webhook_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidEvent, match=r"webhook\.url: must be a URL"):
        Backend().create(SPEC, webhook="nowhere")


def test_a_webhook_of_a_child_is_attempted_again_while_its_parent_runs() -> None:
    hooks, clock = Hooks(failures=1), Clock()
    kid = {"id": "kid", "workflow": {"steps": [], "webhook": {"url": URL}, "name": "kid"}}
    spec = document(kid, step("a", "kid", max_attempts=2))
    tries: list[int] = []

    def slow(inputs: Json) -> Json:
        clock.at_ms += 2_000
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("once more")
        return {}

    backend = Backend({"a": slow, "webhook": hooks}, clock=clock, threads=1)

    Workflow.from_dict(spec, backend).run()

    assert [call["workflow"] for call in hooks.calls] == ["kid", "kid"]


class OnTheSpot(InProcessRunner):
    """A runner that runs what it is given at once."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []

    def dispatch(self, workflow_execution_id: str, jobs: Sequence[DispatchJob]) -> ResultPairs:
        self.ran += [job.step_id for job in jobs]
        return [(job.step_id, {"n": 1}) for job in jobs]


def test_a_runner_that_works_on_the_spot_has_delivered_when_the_end_is_known() -> None:
    runner = OnTheSpot()
    workflow = Workflow.from_dict(SPEC, Backend(runner=runner))

    assert workflow.run() == Complete({"n": 1})

    assert runner.ran == ["a", WEBHOOK_UNIT]
    assert webhook(workflow).status == "complete"


def test_after_advance_by_hand_the_job_is_with_the_runner() -> None:
    backend = Backend()
    workflow = Workflow.from_dict(SPEC, backend)
    workflow.advance()
    workflow.on_step_result("a", {"n": 1})

    assert workflow.advance() == Complete({"n": 1})

    assert [job.step_id for job in backend.list_pending_jobs()] == [WEBHOOK_UNIT]
    workflow.on_step_result(WEBHOOK_UNIT, {"status": 200})
    assert (webhook(workflow).status, workflow.status) == ("complete", "complete")


# ---- in a workflow test


def test_a_workflow_test_posts_nothing_and_records_what_would_be_posted() -> None:
    test = WorkflowTest(SPEC, executors={"a": lambda inputs: {"n": 1}, "webhook": _must_not_be_called}).run()

    [call] = test.calls("webhook")
    assert (call["url"], call["body"]["outcome"], call.step) == (URL, {"n": 1}, WEBHOOK_UNIT)
    assert (test.status, test.step(WEBHOOK_UNIT).status) == ("complete", "complete")


def _must_not_be_called(inputs: Json) -> Json:
    raise AssertionError("a test must not post")


def test_a_workflow_test_may_mock_the_webhook_and_skip_its_back_off() -> None:
    test = WorkflowTest(SPEC, executors={"a": lambda inputs: {"n": 1}})
    hooks = test.mock("webhook", [ConnectionError("no"), ConnectionError("no"), {"status": 200}])

    test.run()
    assert (len(hooks.calls), test.step(WEBHOOK_UNIT).status) == (1, "retry")
    test.run(skip_waits=True)

    assert (len(hooks.calls), test.step(WEBHOOK_UNIT).status, test.step(WEBHOOK_UNIT).attempt) == (
        3,
        "complete",
        3,
    )
    assert {call.idempotency_key for call in hooks.calls} == {"rehearsal#webhook#0"}


@pytest.mark.parametrize("point", KILL_POINTS)
def test_a_webhook_survives_every_kill_in_a_workflow_test(point: Any) -> None:
    test = WorkflowTest(SPEC, executors={"a": lambda inputs: {"n": 1}})
    test.kill(point, step=WEBHOOK_UNIT)

    test.run()

    test.check_kills()
    assert (test.status, test.step(WEBHOOK_UNIT).status) == ("complete", "complete")
    assert {call.idempotency_key for call in test.calls("webhook")} == {"rehearsal#webhook#0"}


def test_without_a_webhook_its_name_means_nothing() -> None:
    test = WorkflowTest({"steps": []})

    with pytest.raises(Exception, match="webhook"):
        test.mock("webhook")


@pytest.mark.parametrize("seed", range(10))
def test_a_webhook_is_delivered_in_whatever_order_things_happen(seed: int) -> None:
    test = WorkflowTest(SPEC, executors={"a": lambda inputs: {"n": 1}}, order="shuffled", seed=seed)

    test.run(skip_waits=True)

    assert (test.status, test.outcome, test.step(WEBHOOK_UNIT).status) == ("complete", {"n": 1}, "complete")
