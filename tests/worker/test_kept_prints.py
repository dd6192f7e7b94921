"""What an executor prints is kept in its step log, and is printed all the same."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from orchestrator.application.records.step_log import MAX_LINE_LENGTH
from orchestrator.application.redaction.by_key import REDACTED
from orchestrator.application.redaction.by_value import REDACT_NOTHING, ValueRedactor
from orchestrator.worker.printed_lines import PrintedLines


def test_whole_lines_are_kept_and_everything_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    kept: list[str] = []
    before = sys.stdout

    with PrintedLines(kept.append, REDACT_NOTHING):
        print("one", 1)
        sys.stdout.writelines(["two\nth", "ree\n"])
        assert kept == ["one 1", "two", "three"]
        print("no line feed", end="")
        assert sys.stdout.encoding == before.encoding
    print("after")

    assert kept == ["one 1", "two", "three", "no line feed"]
    assert capsys.readouterr().out == "one 1\ntwo\nthree\nno line feedafter\n"
    assert sys.stdout is before


def test_secrets_are_redacted_also_if_they_are_written_in_parts(capsys: pytest.CaptureFixture[str]) -> None:
    kept: list[str] = []

    with PrintedLines(kept.append, ValueRedactor(["hunter2 is it"])):
        print("with hunter2 is it")
        sys.stdout.write("hunter2")
        sys.stdout.write(" is it\n")

    assert kept == [f"with {REDACTED}", REDACTED]
    assert f"with {REDACTED}" in capsys.readouterr().out


def test_runs_of_several_threads_are_kept_apart() -> None:
    kept: dict[str, list[str]] = {"a": [], "b": []}
    both = threading.Barrier(2, timeout=60)

    def run(name: str) -> None:
        with PrintedLines(kept[name].append, REDACT_NOTHING):
            for number in range(50):
                both.wait()
                print(name, end=" ")
                print(number)

    before = sys.stdout
    threads = [threading.Thread(target=run, args=[name]) for name in kept]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert kept == {name: [f"{name} {number}" for number in range(50)] for name in "ab"}
    assert sys.stdout is before


def test_a_run_that_owns_its_process_gets_the_lines_of_other_threads() -> None:
    kept: list[str] = []

    with PrintedLines(kept.append, REDACT_NOTHING, owns_process=True):
        thread = threading.Thread(target=print, args=["from a thread"])
        thread.start()
        thread.join()

    assert kept == ["from a thread"]


def test_a_forked_process_keeps_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    kept: list[str] = []

    with PrintedLines(kept.append, REDACT_NOTHING) as lines:
        lines.process = os.getpid() + 1  # as a fork sees it
        print("from a fork")

    assert kept == []
    assert "from a fork" in capfd.readouterr().out


def test_an_endless_line_is_cut() -> None:
    kept: list[str] = []

    with PrintedLines(kept.append, REDACT_NOTHING):
        for _ in range(100):
            sys.stdout.write("x" * 1_000)

    assert [len(line) for line in kept] == [MAX_LINE_LENGTH + 1]


def test_a_stream_that_an_executor_has_set_stays() -> None:
    before = sys.stdout

    with PrintedLines(print, REDACT_NOTHING):
        sys.stdout = sys.__stderr__

    assert sys.stdout is sys.__stderr__
    sys.stdout = before
