"""Steps with `isolation: process`: their executors run in child processes, which can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from local import isolated_functions
from orchestrator import Backend, Complete, Failed, Workflow
from orchestrator.application.spec.validation import check_spec
from worlds.documents import document, step
from worlds.waiting import wait_until

Json = dict[str, Any]
FUNCTIONS = {
    name: getattr(isolated_functions, name)
    for name in ("pid", "hang", "die_once", "report", "beat_once", "refuse", "large", "later")
}


def isolated(name: str, after: str = "", **keys: Any) -> Json:
    return step(name, after, isolation="process", **keys)


def start(*steps: Json, executors: Any = FUNCTIONS, inputs: Json | None = None, **keys: Any) -> Workflow:
    return Workflow.from_dict(document(*steps, **keys), Backend(executors), inputs)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def read_pid(path: Path) -> int:
    wait_until(path.exists)
    return int(path.read_text())


def test_an_isolated_step_runs_in_a_child_process_which_is_used_again() -> None:
    first, last = isolated("pid", id="a"), isolated("later", after="a", id="b")
    outputs = {name: {"var": f"steps.{name}.output.pid"} for name in "ab"}

    done = start(first, last, outputs=outputs).run()

    assert isinstance(done, Complete)
    assert done.outcome["a"] == done.outcome["b"] != os.getpid()


def test_defaults_isolate_every_step() -> None:
    workflow = start(step("pid"), defaults={"isolation": "process"})

    workflow.run()

    assert workflow.state["pid"] != os.getpid()
    spec = check_spec(document(step("a"), isolated("b"), step("c", isolation="thread"))).spec
    assert [one.isolation for one in spec.steps] == ["thread", "process", "thread"]


def test_an_isolated_function_is_killed_at_its_deadline(tmp_path: Path) -> None:
    path = tmp_path / "pid"

    warm_up = isolated("pid")  # the start of a process is not part of the next step
    done = start(warm_up, isolated("hang", after="pid", timeout="5s", input={"file": str(path)})).run()

    assert isinstance(done, Failed)
    assert (done.error["kind"], done.error["message"]) == ("timeout", "execution timeout exceeded (5 s)")
    wait_until(lambda: not is_alive(read_pid(path)))


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    program = f"""
        import sys
        sys.path[:] = {sys.path!r}
        from local.isolated_functions import hang
        from orchestrator import Backend, Workflow

        spec = {{"steps": [{{"op": "hang", "isolation": "process", "input": {{"file": {str(path)!r}}}}}]}}
        Workflow.from_dict(spec, Backend({{"hang": hang}})).run()
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)])
    try:
        child = read_pid(path)
        assert is_alive(child)
    finally:
        parent.kill()
        parent.wait()

    wait_until(lambda: not is_alive(child))


def test_a_step_whose_process_dies_is_dispatched_again_as_after_a_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workflow = start(isolated("die_once", input={"file": str(tmp_path / "died")}))

    assert isinstance(workflow.run(), Complete)
    assert workflow.backend.load(workflow.id).steps["die_once"].lost == 1
    assert "the process of its executor ended (exit code 3)" in caplog.text
    assert "goes on in thread" not in caplog.text


def test_log_lines_heartbeats_and_the_context_reach_the_right_place() -> None:
    workflow = start(isolated("report", heartbeat="1m"))

    workflow.run()

    assert workflow.state == {"step": "report"}
    assert [line.text for line in workflow.log_lines()] == ["0.5: half", "done"]


def test_an_isolated_function_that_sends_no_heartbeat_is_killed_and_lost() -> None:
    done = start(isolated("beat_once", heartbeat="200ms"), limits={"max_lost": 0}).run()

    assert isinstance(done, Failed)
    assert done.error["kind"] == "lost"
    assert "sent no heartbeat for 0.2 s" in done.error["message"]


def test_an_exception_has_the_same_failure_as_in_a_thread() -> None:
    errors = []
    for isolation in ("thread", "process"):
        done = start(step("refuse", isolation=isolation)).run()
        assert isinstance(done, Failed)
        errors.append({key: done.error[key] for key in ("kind", "type", "message")})

    assert errors[0] == errors[1]
    assert errors[1]["message"] == "not today"


def test_a_large_output_is_kept_by_reference() -> None:
    limit = {"max_output_bytes": 1024}
    outputs = {"t": {"var": "state.text"}}
    workflow = start(isolated("large", input={"size": 5000}), limits=limit, outputs=outputs)

    done = workflow.run()

    assert isinstance(done, Complete)
    assert done.outcome == {"t": "x" * 5000}


class Methods:
    def work(self, inputs: Json) -> Json:
        return {}


@pytest.mark.parametrize("executor", [lambda inputs: {}, Methods().work, Methods()])
def test_an_executor_that_cannot_be_imported_fails_with_advice(executor: Any) -> None:
    done = start(isolated("work", retry=3), executors={"work": executor}).run()

    assert isinstance(done, Failed)
    assert (done.error["kind"], done.error["type"]) == ("refused", "ExecutorNotImportable")
    assert "define it at the top level of a module" in done.error["message"]


def test_a_missing_executor_fails_as_in_a_thread() -> None:
    done = start(isolated("absent")).run()

    assert isinstance(done, Failed)
    assert done.error["type"] == "ExecutorNotFound"
