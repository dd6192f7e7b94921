"""Malicious executors, under every kind of worker: none of them affects another step permanently.

A step that kills its process is counted, and given up; one that breaks what several share ends them all, and
they run again. `docs/isolation.md` has the table.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete, Failed
from orchestrator.application.records.step_log import MAX_LINE_LENGTH
from processes import wait_until
from worlds.attacks import CREW, FRESH, MARK, STOCK, WARM, WORKERS, Json, System, attacked, marked

pytestmark = pytest.mark.slow

ENVIRONMENT = {"ORCHESTRATOR_LEASE_S": "4", "ORCHESTRATOR_MAX_MEMORY": "1GB"}


@pytest.fixture(scope="module", params=WORKERS)
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("hostile")
    with attacked(request.param, folder, **ENVIRONMENT, **{MARK: str(folder)}) as made:
        yield made


# ---- exceptions

RAISED = {
    "KeyboardInterrupt": ("KeyboardInterrupt", "now"),
    "GeneratorExit": ("GeneratorExit", "done"),
    "CancelledError": ("CancelledError", "no more"),
    "SystemExit": ("SystemExit", "leaving"),
    "mute": ("_Mute", "_Mute"),
    "leaving": ("_Leaving", "_Leaving"),
    "numb": ("_Numb", "_Numb"),
    "unnamed": ("_Unnamed", "who?"),
    "long": ("ValueError", "x" * 10_000),
    "long name": ("X" * 200, "short"),
    "half a pair": ("ValueError", "?"),
    "without source": ("ZeroDivisionError", "division by zero"),
}


@pytest.mark.parametrize("fn", ["raises", "raises_later"])
def test_any_exception_of_an_executor_is_a_failure_of_its_step(system: System, fn: str) -> None:
    started = {what: system.start({"fn": fn, "input": {"what": what}}) for what in RAISED}
    errors = {what: system.error(execution) for what, execution in started.items()}

    assert {what: (error["type"], error["message"]) for what, error in errors.items()} == RAISED
    assert {error["kind"] for error in errors.values()} == {"exception"}
    system.still_serves()


def test_an_exception_that_cannot_be_inspected_is_a_failure_too(system: System) -> None:
    error = system.fails({"fn": "raises", "input": {"what": "touchy"}})

    assert (error["kind"], error["type"], error["message"]) == ("exception", "_Touchy", "_Touchy")
    system.still_serves()


def test_an_exception_with_an_endless_str_ends_at_the_timeout(system: System) -> None:
    error = system.fails({"fn": "raises", "input": {"what": "endless"}, "timeout": "1s"})

    assert (error["kind"], error["message"]) == ("timeout", "execution timeout exceeded (1 s)")
    system.still_serves()


# ---- outputs

RETURNED = {
    "250 levels": "output is not JSON: it is nested deeper than 200",
    "900 levels": "output is not JSON: it is nested deeper than 200",
    "10,000 levels": "the output is not JSON: maximum recursion depth exceeded",
    "itself": "the output is not JSON: Circular reference detected",
    "furious": "the output is not JSON: do not look",
    "mapping": "the output is not JSON: nothing in here",
    "half a pair": "the output is not JSON: 'utf-8' codec can't encode character",
    "not a number": "the output is not JSON: Out of range float values",
    "large number": "the output is not JSON: Exceeds the limit (4300 digits)",
    "generator": "the output is not JSON: Object of type generator",
    "function": "the output is not JSON: Object of type function",
}


def test_a_value_that_cannot_be_stored_is_not_an_output(system: System) -> None:
    started = {what: system.start({"fn": "returns", "input": {"what": what}}) for what in RETURNED}
    errors = {what: system.error(execution) for what, execution in started.items()}

    wrong = [one["message"] for what, one in errors.items() if RETURNED[what] not in one["message"]]
    assert wrong == []
    assert {error["kind"] for error in errors.values()} == {"bad_output"}
    system.still_serves()


def test_a_hundred_megabytes_are_not_an_output(system: System) -> None:
    error = system.fails({"fn": "returns", "input": {"what": "100 MB"}})

    assert error["kind"] == "bad_output"
    assert "has 100,000,002 bytes" in error["message"]
    assert "ORCHESTRATOR_PAYLOAD_MAX_BYTES" in error["message"]
    system.still_serves()


def test_a_value_that_lies_about_its_class_is_not_an_output(system: System) -> None:
    liar = system.fails({"fn": "returns", "input": {"what": "liar"}})
    furious = system.fails({"fn": "returns", "input": {"what": "furious at once"}})

    assert "_Liar" in liar["message"]
    assert (furious["type"], furious["message"]) == ("SystemExit", "do not look")
    system.still_serves()


def test_a_value_that_can_be_stored_is_an_output_whatever_its_class(system: System) -> None:
    assert system.runs({"fn": "returns", "input": {"what": "text"}}) == {"text": "as it is"}
    assert system.runs({"fn": "returns", "input": {"what": "number"}}) == {"value": 10**4_000}
    assert system.runs({"fn": "returns", "input": {"what": "150 levels"}})
    system.still_serves()


# ---- dying and hanging

DEATHS = {
    "os._exit(3)": "exit 3",
    "segfault": "signal 11",
    "abort": "signal 6",
    "overflow": "signal 11",
    "SIGKILL": "signal 9",
    "killpg": "signal 9",
}


@pytest.mark.parametrize("how", DEATHS)
def test_a_step_that_always_kills_its_process_fails(system: System, how: str) -> None:
    execution = system.start({"fn": "dies", "input": {"how": how}}, limits={"max_lost": 1})
    error = system.error(execution)

    process = "work-horse" if system.kind in (STOCK, WARM) else "process"
    assert error["kind"] == "lost"
    assert error["message"].startswith(f"its {process} died ({DEATHS[how]}): ")
    assert error["message"].endswith(" (2 workers lost with this attempt)")
    assert system.lost(execution) == 1
    system.still_serves()


@pytest.mark.parametrize("how", ["os._exit(0)", "exec"])
def test_a_step_that_exits_with_code_0_is_lost(system: System, how: str) -> None:
    error = system.fails({"fn": "dies", "input": {"how": how}}, limits={"max_lost": 0})

    causes = {STOCK: "its worker stopped beating", WARM: "its work-horse died (exit 0): the step ended it"}
    assert error["kind"] == "lost"
    assert causes.get(system.kind, "its process died (exit 0): the step ended it") in error["message"]
    system.still_serves()


@pytest.mark.parametrize("how", ["SIGSTOP", "holds the interpreter"])
def test_a_stopped_process_is_killed_when_its_lease_has_expired(system: System, how: str) -> None:
    error = system.fails({"fn": "dies", "input": {"how": how}}, limits={"max_lost": 0})

    assert error["kind"] == "lost"
    assert "died (signal 9)" in error["message"] or "stopped beating" in error["message"]
    system.still_serves()


def test_a_step_that_sends_sigterm_to_its_process_affects_no_other_step(system: System) -> None:
    error = system.fails({"fn": "dies", "input": {"how": "SIGTERM"}, "timeout": "1s"}, limits={"max_lost": 0})

    assert error["kind"] == "lost"
    system.still_serves()


def test_a_step_that_ignores_signals_ends_at_its_timeout(system: System) -> None:
    error = system.fails({"fn": "ignores_signals_and_hangs", "timeout": "1s"})

    if system.kind == CREW:
        assert error["message"] == "signal only works in main thread of the main interpreter"
    else:
        assert (error["kind"], error["message"]) == ("timeout", "execution timeout exceeded (1 s)")
    system.still_serves()


# ---- resources


def test_a_step_that_needs_all_memory_affects_no_other_step(system: System) -> None:
    error = system.fails({"fn": "hoards"})

    assert (error["kind"], error["type"]) == ("exception", "MemoryError")
    assert "may use 1,024 MB; raise ORCHESTRATOR_MAX_MEMORY" in error["message"]
    system.still_serves()


def test_a_hundred_megabytes_may_be_printed(system: System) -> None:
    assert system.runs({"fn": "prints"}) == {"printed": True}

    system.still_serves()


def test_a_hundred_megabytes_of_log_are_cut(system: System) -> None:
    execution = system.start({"fn": "logs"})
    assert system.output(execution) == {"logged": True}

    kept = [line.text for line in system.client.step_log(execution)]
    assert set(kept) == {f"{'x' * MAX_LINE_LENGTH}..."}
    assert len(kept) >= 50  # more if a run was lost: on a busy machine its lease of 4 s may expire
    system.still_serves()


@pytest.mark.parametrize("fn", ["forks", "forks_later"])
def test_a_step_that_forks_returns_once_and_its_copy_ends(system: System, fn: str) -> None:
    system.still_serves()
    wait_until(lambda: len(marked_of(system)) == usual(system), what="idle workers")

    output = system.runs({"fn": fn})

    assert output == {"is_parent": True}
    wait_until(lambda: len(marked_of(system)) == usual(system), what="the copy to end")
    system.still_serves()


def marked_of(system: System) -> set[int]:
    return marked(f"{MARK}={system.folder}")


def usual(system: System) -> int:
    """The coordinator, the worker, and the child process in which our own worker runs steps."""
    return 2 if system.kind == STOCK else 3


def test_threads_that_never_end_block_no_other_step(system: System) -> None:
    assert system.runs({"fn": "starts_threads"}) == {"started": True}

    system.still_serves()


# ---- changes to the process


@pytest.mark.parametrize("how", ["stop", "exit", "task", "cancel"])
def test_a_step_that_stops_its_event_loop_affects_no_other_step(system: System, how: str) -> None:
    execution = system.start({"fn": "stops_the_loop", "input": {"how": how}})

    if system.kind == CREW and how != "cancel":
        assert system.output(execution) == {"stopped": True}
    else:
        types = {"stop": "RuntimeError", "exit": "SystemExit", "task": "SystemExit"}
        assert system.error(execution)["type"] == types.get(how, "CancelledError")
    system.still_serves()


@pytest.mark.parametrize("what", ["streams", "shallow", "modules", "forgets", "logs no more"])
def test_a_step_that_changes_its_process_does_not_change_the_next(system: System, what: str) -> None:
    assert system.runs({"fn": "changes", "input": {"what": what}}) == {"changed": True}

    system.still_serves()


@pytest.mark.parametrize("what", ["closes", "closes all"])
def test_a_step_that_closes_every_file_is_done_or_lost(system: System, what: str) -> None:
    """The connections to Redis and to the supervisor are among them. The process may reconnect in time to
    publish its result, or exit before that."""
    execution = system.start({"fn": "changes", "input": {"what": what}}, limits={"max_lost": 1})
    final = system.client.wait(execution, 180)

    if isinstance(final, Failed):
        assert re.match(r"its (process|work-horse) died \(exit [01]\): ", final.error["message"])
    else:
        assert isinstance(final, Complete), (final, system.log())
    system.still_serves()


def test_a_step_that_writes_into_every_file_is_done_or_lost(system: System) -> None:
    """The connections to Redis are among them, so the result may or may not arrive."""
    execution = system.start({"fn": "changes", "input": {"what": "writes"}}, limits={"max_lost": 1})
    final = system.client.wait(execution, 180)

    assert isinstance(final, Complete) or (isinstance(final, Failed) and final.error["kind"] == "lost")
    system.still_serves()


def test_a_child_with_broken_connections_leaves_when_it_is_asked_to(tmp_path: Path) -> None:
    with attacked(CREW, tmp_path, **ENVIRONMENT) as system:
        for _ in range(3):
            execution = system.start({"fn": "changes", "input": {"what": "writes"}}, limits={"max_lost": 1})
            system.client.wait(execution, 180)

        system.worker.terminate()

        assert system.worker.wait(180) == 0, system.log()


def test_a_step_cannot_set_signal_handlers_in_a_concurrent_child(system: System) -> None:
    execution = system.start({"fn": "changes", "input": {"what": "signals"}})

    if system.kind == CREW:
        message = system.error(execution)["message"]
        assert message == "signal only works in main thread of the main interpreter"
    else:
        assert system.output(execution) == {"changed": True}
    system.still_serves()


def test_a_step_that_deletes_all_keys_of_rq_completes(system: System) -> None:
    assert system.runs({"fn": "deletes_its_job"}) == {"deleted": True}

    system.still_serves()


# ---- attacks on the worker

SABOTAGE = {
    "never publishes": ("lost", "its worker stopped beating"),
    "nonsense": ("bad_output", "the result was rejected: output is not JSON"),
}


@pytest.mark.parametrize("worker", [*WORKERS, pytest.param(FRESH, marks=pytest.mark.full)])
@pytest.mark.parametrize("what", SABOTAGE)
def test_a_step_that_patches_the_worker_affects_only_its_own_process(
    worker: str, what: str, tmp_path: Path
) -> None:
    """If several steps run in the process, all of them are affected, and the worker must be started again."""
    with attacked(worker, tmp_path, **ENVIRONMENT) as system:
        error = system.fails({"fn": "changes", "input": {"what": what}}, limits={"max_lost": 0})

        kind, message = SABOTAGE[what]
        assert error["kind"] == kind
        assert message in error["message"]
        if worker in (WARM, CREW):
            system.worker.terminate()
            assert system.worker.wait(180) == 0
            system.serve()
        system.still_serves()


@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_result_of_a_step_that_kills_the_worker_is_kept(worker: str, number: int, tmp_path: Path) -> None:
    step = killer(tmp_path, "kills_its_parent", signal=int(number))
    with attacked(worker, tmp_path, **ENVIRONMENT) as system:
        execution = system.start(step)

        assert system.output(execution) == {"done": True}
        assert system.lost(execution) == 0
        assert system.worker.wait(180) in (0, -number)
        system.serve()
        system.still_serves()


@pytest.mark.parametrize("worker", WORKERS)
def test_a_step_that_kills_the_worker_and_itself_runs_again_elsewhere(worker: str, tmp_path: Path) -> None:
    step = killer(tmp_path, "kills_its_parent_and_itself")
    with attacked(worker, tmp_path, **ENVIRONMENT) as system:
        execution = system.start(step)
        assert system.worker.wait(180) == -signal.SIGKILL
        system.serve()

        assert system.output(execution) == {"done": True}
        assert system.lost(execution) == 1
        system.still_serves()


def killer(folder: Path, fn: str, **inputs: Any) -> Json:
    return {"fn": fn, "input": {"marker": str(folder / "killed"), **inputs}}
