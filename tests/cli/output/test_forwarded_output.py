"""What executors print in this process is passed on in whole lines."""

from __future__ import annotations

import threading
from contextlib import redirect_stdout

from orchestrator.cli.output.forwarded_output import ForwardedOutput
from worlds.waiting import in_thread


def test_a_line_is_passed_on_when_it_is_whole() -> None:
    lines: list[str] = []

    with redirect_stdout(ForwardedOutput(lines.append)):
        print("a", 1)
        print("b", end="")
        print("c\nd\n", end="")

    assert lines == ["a 1", "bc", "d"]


def test_the_lines_of_two_threads_do_not_mix() -> None:
    lines: list[str] = []
    output, half, whole = ForwardedOutput(lines.append), threading.Event(), threading.Event()

    def print_slowly() -> None:
        output.write("first ")
        half.set()
        whole.wait()
        output.write("half\n")

    with in_thread(print_slowly):
        half.wait()
        output.write("second\n")
        whole.set()

    assert lines == ["second", "first half"]
