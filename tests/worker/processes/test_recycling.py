"""When the process that runs steps is replaced."""

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


def test_a_process_that_steps_leave_as_it_was_runs_so_many_of_them() -> None:
    monitor = RecyclingMonitor(RecyclingLimits(max_steps=3))

    assert [monitor.check_after_step() for _ in range(3)] == [None, None, "it has run 3 steps"]


def test_a_process_that_has_grown_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = 100 << 20
    monkeypatch.setattr("orchestrator.worker.processes.recycling._peak", lambda: peak)
    monitor = RecyclingMonitor(RecyclingLimits(max_growth_bytes=50 << 20))
    peak += 50 << 20
    assert monitor.check_after_step() is None
    peak += 1 << 20
    assert monitor.check_after_step() == "it has grown by 51 MB"


def _goes_elsewhere(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.chdir(folder)


def _removes_where_it_is(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "getcwd", _no_directory)


def _no_directory() -> str:
    raise FileNotFoundError("somebody has removed it")


def _sets_a_variable(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("LEFT_BY_A_STEP", "1")


def _has_a_module_path(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.syspath_prepend(str(folder))


def _prints_elsewhere(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys, "stdout", sys.stderr)


def _has_no_patience(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(socket, "getdefaulttimeout", lambda: 1.0)


def _handles_a_signal(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("orchestrator.worker.processes.recycling.getsignal", lambda number: signal.SIG_IGN)


@pytest.mark.parametrize(
    ("leave", "what"),
    [
        (_goes_elsewhere, "directory"),
        (_removes_where_it_is, "directory"),
        (_sets_a_variable, "variables"),
        (_has_a_module_path, "module path"),
        (_prints_elsewhere, "streams"),
        (_has_no_patience, "socket timeout"),
        (_handles_a_signal, "signal handlers"),
    ],
)
def test_a_process_that_a_step_has_left_otherwise_is_replaced(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leave: Callable[[Path, pytest.MonkeyPatch], None],
    what: str,
) -> None:
    monitor = RecyclingMonitor(RecyclingLimits())
    leave(tmp_path, monkeypatch)

    assert monitor.check_after_step() == f"a step has changed its {what}"


@pytest.mark.parametrize(("name", "is_worn"), [("somebody's", True), ("lines", False)])
def test_a_process_with_a_thread_of_a_step_is_replaced(name: str, is_worn: bool) -> None:
    monitor, over = RecyclingMonitor(RecyclingLimits()), threading.Event()
    thread = threading.Thread(target=over.wait, name=name)
    thread.start()
    try:
        assert monitor.check_after_step() == ("a step has left a thread behind" if is_worn else None)
    finally:
        over.set()
        thread.join()
