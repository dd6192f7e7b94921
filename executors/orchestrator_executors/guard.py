"""Runs one command and lets nothing of it stay: what stands between the executor `process` and a program.

    python -I -S guard.py <socket> <folder or -1>

It is started by its file name and imports nothing of ours, with the streams of the command as its own. Over
the socket it is told what to run, and answers with a line: `error <errno>`, or `ended <status of waitpid>`.
It ends when the command and everything that came of it are gone.

The socket is a lifeline too. When its other end is closed, because the executor wants no more or because its
process was killed, all is killed. Whatever the command leaves behind becomes a child of this process, also if
it has left its session, so it can be found: PR_SET_CHILD_SUBREAPER of Linux. Elsewhere the process group of
the command is killed, and what has left it stays.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_INTERVAL_MS = 1_000
FAST_POLL_INTERVAL_MS = 20
GIVE_UP_AFTER_S = 3.0


def main() -> None:
    lifeline, folder = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(lifeline, False)
    parent = os.getppid()
    is_linux = prctl(PR_SET_CHILD_SUBREAPER, 1)
    argv, environment = read_command(lifeline)
    pid = os.fork()
    if not pid:
        exec_command(lifeline, folder, argv, environment)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # the command alone holds them now: their end is its end
        os.dup2(nothing, stream)
    status = wait(lifeline, pid, parent)
    kill_all(pid, is_linux)
    if status is not None:
        with suppress(OSError):
            os.write(lifeline, b"ended %d\n" % status)


def prctl(option: int, value: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


def read_command(lifeline: int) -> tuple[list[bytes], dict[bytes, bytes]]:
    """How many bytes follow, in eight; how many arguments there are; these, the first of them the path of the
    program; and NAME=value for each variable. Each ends with a zero byte, which none of them can contain."""
    size = int.from_bytes(read(lifeline, 8))
    count, *fields = read(lifeline, size).split(b"\0")[:-1]
    variables = (field.partition(b"=") for field in fields[int(count) :])
    return fields[: int(count)], {name: value for name, _, value in variables}


def read(lifeline: int, size: int) -> bytes:
    found = b""
    while len(found) < size:
        chunk = os.read(lifeline, size - len(found))
        if not chunk:
            sys.exit(0)  # nobody wants it any more
        found += chunk
    return found


def exec_command(lifeline: int, folder: int, argv: list[bytes], environment: dict[bytes, bytes]) -> None:
    """In the child: the command, in a session of its own, which dies with this process."""
    try:
        guard = os.getppid()
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(127)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and so by what it becomes
            signal.signal(ignored, signal.SIG_DFL)
        if folder >= 0:
            os.fchdir(folder)
            os.set_inheritable(folder, False)
        else:
            os.chdir("/")
        os.execve(argv[0], argv, environment)
    except OSError as error:
        os.write(lifeline, b"error %d\n" % (error.errno or 0))
    finally:
        os._exit(127)


def wait(lifeline: int, pid: int, parent: int) -> int | None:
    """How the command has ended; None if nobody wants to know any more."""
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    within_ms = FAST_POLL_INTERVAL_MS
    with suppress(AttributeError, OSError):  # without it, the command is looked at often
        poll.register(os.pidfd_open(pid), select.POLLIN)
        within_ms = POLL_INTERVAL_MS
    while True:
        for found, _ in poll.poll(within_ms):
            if found == lifeline:
                return None  # nothing is ever sent: this is its end
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if os.getppid() != parent:  # it has died, and a process that it had forked holds its end
            return None


def kill_all(pid: int, is_linux: bool) -> None:
    """Kill the command, if it runs, and all that came of it.

    They are stopped first, until there are no new ones, and then killed: who is stopped starts nobody.
    """
    if not is_linux:
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        return
    until = time.monotonic() + GIVE_UP_AFTER_S  # what belongs to another user cannot be killed
    stopped: set[int] = set()
    while not reap_children() and time.monotonic() < until:
        found = descendants()
        for one in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL if found <= stopped else signal.SIGSTOP)
        if found <= stopped:
            time.sleep(0.001)
        stopped = found


def reap_children() -> bool:
    """Take leave of every child that has ended; True if there is none left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def descendants() -> set[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                parents[int(name)] = int(stat.read().rpartition(b")")[2].split()[1])
    found, more = set[int](), {os.getpid()}
    while more:
        more = {pid for pid, parent in parents.items() if parent in more} - found
        found |= more
    return found


if __name__ == "__main__":
    main()
