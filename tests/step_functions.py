"""Executors for tests on real processes: plain functions, as a user would write them."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pid_files import note_pid


def add(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"sum": sum(value for value in inputs.values() if isinstance(value, int))}


def slow_add(inputs: dict[str, Any]) -> dict[str, Any]:
    time.sleep(float(inputs.get("seconds", 0.02)))
    return {"sum": inputs["a"] + inputs["b"]}


def nothing(inputs: dict[str, Any]) -> dict[str, Any]:
    return {}


def fail(inputs: dict[str, Any]) -> dict[str, Any]:
    raise ValueError(inputs.get("message", "as asked"))


def fail_until(inputs: dict[str, Any]) -> dict[str, Any]:
    """Fails until a file exists."""
    if not Path(inputs["file"]).exists():
        raise ValueError("the ledger is closed")
    return {"posted": True}


def talkative(inputs: dict[str, Any]) -> dict[str, Any]:
    """Logs, also from a thread, and an exception; fails if the input says so."""
    logger = logging.getLogger("shop")
    logger.info("here\nI am", extra={"colour": "red"})
    thread = threading.Thread(target=lambda: logger.warning("from a thread"))
    thread.start()
    thread.join()
    try:
        raise LookupError("no such order")
    except LookupError:
        logger.exception("it broke")
    if inputs.get("fails"):
        raise ValueError(f"cannot do it with {inputs}")
    return {"said": inputs.get("word"), "answer": "SECRET-OUTPUT"}


def busy(inputs: dict[str, Any]) -> dict[str, Any]:
    """Writes its pid to a file and keeps a core busy for ever."""
    note_pid(inputs["pid_file"])
    while True:
        sum(range(1_000))


def stubborn(inputs: dict[str, Any]) -> dict[str, Any]:
    """Writes its pid to a file and runs for ever, whatever is raised in it."""
    note_pid(inputs["pid_file"])
    while True:
        with suppress(Exception):
            sum(range(1_000))


def stuck(inputs: dict[str, Any]) -> dict[str, Any]:
    """Writes its pid to a file and never releases the interpreter lock: no other thread can run."""
    note_pid(inputs["pid_file"])
    return {"large": 3 ** (10**10) > 0}


def waits(inputs: dict[str, Any]) -> dict[str, Any]:
    """Writes its pid to a file and waits until another file exists."""
    note_pid(inputs["pid_file"])
    while not Path(inputs["go"]).exists():
        time.sleep(0.01)
    return {"waited": True}


def reports_then_hangs(inputs: dict[str, Any], heartbeat: Callable[..., None]) -> dict[str, Any]:
    """Sends heartbeats for a while and then keeps a core busy for ever; the second run returns at once."""
    pid_file = Path(inputs["pid_file"])
    if pid_file.exists():
        return {"done": True}
    for n in range(10):
        heartbeat(progress=n / 10)
        time.sleep(0.1)
    return busy(inputs)


def reports(inputs: dict[str, Any], heartbeat: Callable[..., None]) -> dict[str, Any]:
    count = int(inputs["seconds"] / 0.2)
    for _ in range(count):
        heartbeat()
        time.sleep(0.2)
    return {"reports": count}


def silent_once(inputs: dict[str, Any], heartbeat: Callable[..., None]) -> dict[str, Any]:
    """The first run returns after so many seconds, without a heartbeat."""
    marker = Path(inputs["marker"])
    if marker.exists():
        return {"call": 2}
    marker.touch()
    time.sleep(inputs["seconds"])
    return {"call": 1}


def call_api(inputs: dict[str, Any], configuration: dict[str, Any]) -> dict[str, Any]:
    """Pretends to call a URL; returns the length of its authorization, not its value."""
    headers = configuration["headers"]
    if not configuration["url"]:
        raise ValueError(f"no url for {headers['authorization']}")
    people = [{"name": "ada"}, {"name": "grace"}]
    answer = {"url": configuration["url"], "accept": headers["accept"]}
    return answer | {"signed": len(headers["authorization"]), inputs["kind"]: people}


def pick(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"picked": inputs["list"][inputs["at"]]}


def loaded(inputs: dict[str, Any], configuration: dict[str, Any]) -> dict[str, Any]:
    """The modules that this process has imported."""
    return {"modules": sorted(sys.modules)}


def charge(inputs: dict[str, Any]) -> dict[str, Any]:
    """Writes into a ledger and, if the input says so, dies after the first entry, before it can return."""
    ledger = Path(inputs["ledger"])
    with ledger.open("a") as entries:
        entries.write(f"{inputs['order']}\n")
    if inputs["dies"] and ledger.read_text().count("\n") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"receipt": f"paid for {inputs['order']}"}


def speaks(
    inputs: dict[str, Any], log: Callable[..., None], heartbeat: Callable[..., None]
) -> dict[str, Any]:
    """Logs a line, and then runs until the file `go` exists or it is killed."""
    log(f"begins, in {inputs['mood']} mood")
    heartbeat(0.5, "half of it")
    note_pid(inputs["pid_file"])
    while not Path(inputs["go"]).exists():
        time.sleep(0.01)
    log("ends")
    return {"done": True}


def many_rows(inputs: dict[str, Any]) -> dict[str, Any]:
    """Returns about five megabytes, and the number of rows."""
    rows = [{"id": n, "name": f"row number {n}"} for n in range(inputs.get("count", 120_000))]
    return {"rows": rows, "count": len(rows)}


def sum_of_rows(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"sum": sum(row["id"] for row in inputs["rows"]), "count": len(inputs["rows"])}


def talks(inputs: dict[str, Any], log: Callable[..., None]) -> dict[str, Any]:
    log("good morning")
    return {}


def prints_lines(inputs: dict[str, Any]) -> dict[str, Any]:
    for number in range(inputs["lines"]):
        print("line", number, "of", inputs["name"])
    print("and no line feed", end="")
    return {}


def prints_and_fails_once(inputs: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
    print("attempt", context["attempt"])
    if context["attempt"] == 1:
        raise ConnectionError("not yet")
    return {"traceparent": context["traceparent"]}


def prints_and_waits(inputs: dict[str, Any]) -> dict[str, Any]:
    """Prints a line, and then runs until the file `go` exists."""
    print("before the end")
    while not Path(inputs["go"]).exists():
        time.sleep(0.01)
    return {}


class SlowToClose(logging.Handler):
    def close(self) -> None:
        time.sleep(1)


def leaves_slowly(inputs: dict[str, Any]) -> dict[str, Any]:
    """Returns at once; the process that ran it takes a second to exit."""
    logging.getLogger("slow").addHandler(SlowToClose())
    return {}
