"""Signals that end a command: they are raised as an exception, so that everything is stopped in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.cli.errors import InterruptedBySignal


class Interrupted(Exception):
    """A signal asks this process to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def handle_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP, like ^C, into an exception, so that all processes are stopped."""

    def interrupt(number: int, _: object) -> None:
        raise Interrupted(number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it, and so does this
        numbers.append(signal.SIGHUP)
    previous = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    except Interrupted as error:
        raise InterruptedBySignal(error.number, "nothing was left running") from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
