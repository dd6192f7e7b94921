"""Malicious executors, which a worker must survive.

Importing this module also makes a few names resolve to private addresses, as the owner of a domain could.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import CoroutineType
from typing import Any, NoReturn

Json = dict[str, Any]

MEGABYTE = 1_000_000
NAMES = {
    "intranet.example.org": ["10.0.0.7"],
    "loopback.example.org": ["127.0.0.1"],
    "metadata.example.org": ["169.254.169.254"],
    "two-faced.example.org": ["10.0.0.7", "127.0.0.1"],
}

_known = socket.getaddrinfo


def _look_up(host: Any, port: Any, *args: Any, **keys: Any) -> Any:
    return [one for name in NAMES.get(host, [host]) for one in _known(name, port, *args, **keys)]


socket.getaddrinfo = _look_up


def honest(inputs: Json) -> Json:
    return {"honest": True}


async def honest_later(inputs: Json) -> Json:
    await asyncio.sleep(0)
    return {"honest": True}


# ---- exceptions


class _Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("I say nothing")


class _Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit("not even that")


class _Endless(Exception):
    def __str__(self) -> str:
        while True:
            time.sleep(0.01)


class _Numb(Exception):
    def __str__(self) -> Any:
        return 7


class _Nameless(type):
    @property
    def __name__(cls) -> NoReturn:  # type: ignore[override]
        raise LookupError("no name")


class _Unnamed(Exception, metaclass=_Nameless):
    pass


class _Touchy(Exception):
    """Raises at every access."""

    def __getattribute__(self, name: str) -> NoReturn:
        raise SystemExit(name)


class _Broken:
    def get_source(self, name: str) -> NoReturn:
        raise SystemExit(name)


def _without_source() -> NoReturn:
    """Its traceback reads the source lines from a loader."""
    made = compile("def f(): 1/0\nf()", "broken.py", "exec")
    exec(made, {"__loader__": _Broken(), "__name__": "broken"})
    raise AssertionError


_RAISED: dict[str, Callable[[], BaseException]] = {
    "KeyboardInterrupt": lambda: KeyboardInterrupt("now"),
    "GeneratorExit": lambda: GeneratorExit("done"),
    "CancelledError": lambda: asyncio.CancelledError("no more"),
    "SystemExit": lambda: SystemExit("leaving"),
    "mute": _Mute,
    "leaving": _Leaving,
    "endless": _Endless,
    "numb": _Numb,
    "unnamed": lambda: _Unnamed("who?"),
    "touchy": lambda: _Touchy.__new__(_Touchy),
    "long": lambda: ValueError("x" * 100 * MEGABYTE),
    "long name": lambda: type("X" * 10 * MEGABYTE, (Exception,), {})("short"),
    "half a pair": lambda: ValueError("\ud800"),
}


def raises(inputs: Json) -> Json:
    if inputs["what"] == "without source":
        _without_source()
    raise _RAISED[inputs["what"]]()


async def raises_later(inputs: Json) -> Json:
    await asyncio.sleep(0)
    return raises(inputs)


# ---- outputs


class _Liar:
    """Claims to be a coroutine."""

    @property
    def __class__(self) -> Any:
        return CoroutineType

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise AttributeError


class _Furious:
    """Raises when it is inspected."""

    @property
    def __class__(self) -> Any:
        raise SystemExit("do not look")

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise AttributeError

    def __str__(self) -> str:
        raise SystemExit("nor listen")

    __repr__ = __str__


class _Mapping(dict[str, Any]):
    def items(self) -> Any:
        raise KeyboardInterrupt("nothing in here")


class _Text(str):
    def __str__(self) -> str:
        raise SystemExit("no text")

    __repr__ = __str__


def _deep(levels: int) -> Json:
    value: Json = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def _itself() -> Json:
    value: Json = {}
    value["value"] = value
    return value


_RETURNED: dict[str, Callable[[], Any]] = {
    "100 MB": lambda: {"text": "x" * 100 * MEGABYTE},
    "150 levels": lambda: _deep(150),
    "250 levels": lambda: _deep(250),
    "900 levels": lambda: _deep(900),
    "10,000 levels": lambda: _deep(10_000),
    "itself": _itself,
    "liar": _Liar,
    "furious": lambda: {"value": _Furious()},
    "furious at once": _Furious,
    "mapping": lambda: _Mapping(a=1),
    "text": lambda: {"text": _Text("as it is")},
    "half a pair": lambda: {"text": "\ud800"},
    "not a number": lambda: {"value": float("nan")},
    "large number": lambda: {"value": 10**5_000},
    "number": lambda: {"value": 10**4_000},
    "generator": lambda: (n for n in range(3)),
    "function": lambda: honest,
}


def returns(inputs: Json) -> Any:
    return _RETURNED[inputs["what"]]()


# ---- dying and hanging


def _overflow() -> NoReturn:
    sys.setrecursionlimit(1_000_000_000)
    threading.stack_size()

    def deeper(n: int) -> int:
        return max([n], key=lambda m: deeper(m + 1))

    deeper(0)
    raise AssertionError


def _segfault() -> NoReturn:
    ctypes.string_at(0)
    raise AssertionError


_DEATHS: dict[str, Callable[[], Any]] = {
    "os._exit(0)": lambda: os._exit(0),
    "os._exit(3)": lambda: os._exit(3),
    "segfault": _segfault,
    "abort": os.abort,
    "overflow": _overflow,
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "SIGSTOP": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "killpg": lambda: os.killpg(0, signal.SIGKILL),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "holds the interpreter": lambda: ctypes.PyDLL(None).sleep(3_600),  # C code that lets no other thread run
}


def dies(inputs: Json) -> Json:
    """Dies in every run."""
    _DEATHS[inputs["how"]]()
    time.sleep(3_600)
    return {}


def kills_its_parent(inputs: Json) -> Json:
    """Dies in the first run; the result of the second one counts."""
    marker = Path(inputs["marker"])
    if not marker.exists():
        marker.write_text(str(os.getpid()))
        os.kill(os.getppid(), inputs["signal"])
    return {"done": True}


def kills_its_parent_and_itself(inputs: Json) -> Json:
    marker = Path(inputs["marker"])
    if not marker.exists():
        marker.write_text(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    return {"done": True}


# ---- resources


def hoards(inputs: Json) -> Json:
    kept = [bytearray(10 * MEGABYTE) for _ in range(10_000)]
    return {"megabytes": len(kept) * 10}


def prints(inputs: Json) -> Json:
    """Prints a hundred megabytes, to sys.stdout and to the descriptor."""
    for _ in range(50):
        sys.stdout.write("x" * MEGABYTE)
        os.write(2, b"y" * MEGABYTE)
    return {"printed": True}


def logs(inputs: Json, log: Callable[[str], None]) -> Json:
    for _ in range(50):
        log("x" * MEGABYTE)
        logging.getLogger("shop").warning("y" * MEGABYTE)
    return {"logged": True}


def forks(inputs: Json) -> Json:
    """Forks, and returns twice."""
    return {"is_parent": os.fork() != 0}


async def forks_later(inputs: Json) -> Json:
    await asyncio.sleep(0)
    return {"is_parent": os.fork() != 0}


def starts_threads(inputs: Json) -> Json:
    for _ in range(50):
        threading.Thread(target=time.sleep, args=[3_600]).start()
    return {"started": True}


def starts_a_program(inputs: Json) -> Json:
    """Starts threads, and leaves them running."""
    subprocess.Popen(["/bin/sleep", "3600"], env={"MARKER": inputs["marker"]})
    return {"started": True}


# ---- changes to the process


def _closes() -> None:
    os.closerange(3, 1_000)


def _closes_all() -> None:
    os.closerange(0, 1_000)


def _signals() -> None:
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)


def _streams() -> None:
    sys.stdout.close()
    sys.stderr.close()


def _writes() -> None:
    """Writes into every possible file descriptor."""
    for descriptor in range(3, 64):
        with suppress(OSError):
            os.write(descriptor, b"nonsense\n" * 20)


def _shallow() -> None:
    sys.setrecursionlimit(60)


def _loop() -> None:
    sys.modules["json"] = None  # type: ignore[assignment]


def _forgets() -> None:
    os.environ.clear()
    sys.path.clear()
    os.chdir("/")


def _never_publishes() -> None:
    from orchestrator.worker.harness import Harness

    Harness._publish = lambda *_: None  # type: ignore[method-assign]


def _publishes_nonsense() -> None:
    from orchestrator.invocation import invoke

    invoke.encode_output = lambda *_: ("{no JSON", None)  # type: ignore[attr-defined]


def _never_renews() -> None:
    from orchestrator.worker.lease import Lease

    Lease.renew = lambda self: False  # type: ignore[method-assign]


def _logs_no_more() -> None:
    logging.getLogger().handlers.clear()
    logging.disable()


_CHANGES: dict[str, Callable[[], None]] = {
    "closes": _closes,
    "closes all": _closes_all,
    "signals": _signals,
    "streams": _streams,
    "writes": _writes,
    "shallow": _shallow,
    "modules": _loop,
    "forgets": _forgets,
    "never publishes": _never_publishes,
    "nonsense": _publishes_nonsense,
    "never renews": _never_renews,
    "logs no more": _logs_no_more,
}


def changes(inputs: Json) -> Json:
    _CHANGES[inputs["what"]]()
    return {"changed": True}


def ignores_signals_and_hangs(inputs: Json) -> Json:
    _signals()
    time.sleep(3_600)
    return {}


_tasks: list[Any] = []


async def stops_the_loop(inputs: Json) -> Json:
    """Stops the event loop that all steps share."""
    loop = asyncio.get_running_loop()
    match inputs["how"]:
        case "stop":
            loop.call_soon(loop.stop)
        case "exit":
            loop.call_soon(sys.exit)
        case "task":
            _tasks.append(loop.create_task(_exits()))
        case "cancel":
            for task in asyncio.all_tasks():
                task.cancel()
    await asyncio.sleep(0.2)
    return {"stopped": True}


async def _exits() -> NoReturn:
    sys.exit(3)


async def nap(inputs: Json) -> Json:
    await asyncio.sleep(inputs["seconds"])
    return {"pid": os.getpid()}


def deletes_its_job(inputs: Json) -> Json:
    """Deletes its job and all other keys of RQ."""
    from redis import Redis

    with Redis.from_url(os.environ["ORCHESTRATOR_REDIS_URL"]) as redis:
        for key in redis.scan_iter("rq:*"):
            redis.delete(key)
    return {"deleted": True}
