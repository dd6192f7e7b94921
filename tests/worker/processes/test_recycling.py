"""When the process that runs steps is recycled."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.worker.processes.recycling import RecyclingLimits, RecyclingMonitor


def test_a_process_is_recycled_after_the_maximum_number_of_steps() -> None:
    monitor = RecyclingMonitor(RecyclingLimits(max_steps=3))

    assert [monitor.check_after_step() for _ in range(3)] == [None, None, "it has run 3 steps"]


def test_a_process_that_has_grown_is_recycled(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = 100 << 20
    monkeypatch.setattr("orchestrator.worker.processes.recycling._peak_memory", lambda: peak)
    monitor = RecyclingMonitor(RecyclingLimits(max_growth_bytes=50 << 20))
    peak += 50 << 20
    assert monitor.check_after_step() is None
    peak += 1 << 20
    assert monitor.check_after_step() == "it has grown by 51 MB"


def _changes_the_directory(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.chdir(folder)


def _removes_the_directory(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "getcwd", _no_directory)


def _no_directory() -> str:
    raise FileNotFoundError("it was removed")


def _sets_a_variable(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("LEFT_BY_A_STEP", "1")


def _changes_the_module_path(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.syspath_prepend(str(folder))


def _replaces_stdout(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys, "stdout", sys.stderr)


def _sets_a_socket_timeout(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(socket, "getdefaulttimeout", lambda: 1.0)


def _handles_a_signal(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("orchestrator.worker.processes.recycling.getsignal", lambda number: signal.SIG_IGN)


@pytest.mark.parametrize(
    ("change_state", "what"),
    [
        (_changes_the_directory, "directory"),
        (_removes_the_directory, "directory"),
        (_sets_a_variable, "variables"),
        (_changes_the_module_path, "module path"),
        (_replaces_stdout, "streams"),
        (_sets_a_socket_timeout, "socket timeout"),
        (_handles_a_signal, "signal handlers"),
    ],
)
def test_a_process_whose_state_a_step_has_changed_is_recycled(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change_state: Callable[[Path, pytest.MonkeyPatch], None],
    what: str,
) -> None:
    monitor = RecyclingMonitor(RecyclingLimits())
    change_state(tmp_path, monkeypatch)

    assert monitor.check_after_step() == f"a step has changed its {what}"


@pytest.mark.parametrize(("name", "is_recycled"), [("of the step", True), ("step log", False)])
def test_a_process_with_a_thread_of_a_step_is_recycled(name: str, is_recycled: bool) -> None:
    monitor, over = RecyclingMonitor(RecyclingLimits()), threading.Event()
    thread = threading.Thread(target=over.wait, name=name)
    thread.start()
    try:
        assert monitor.check_after_step() == ("a step has left a thread behind" if is_recycled else None)
    finally:
        over.set()
        thread.join()
