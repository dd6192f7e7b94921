"""The guard: a process between the executor `process` and a program, which kills all processes of the
program.

    python -I -S guard.py <socket> <folder or -1>

It is started as a script, imports no other module of this package, and has the standard streams of the
command. It reads the command from the socket and replies with one line: `error <errno>` or `ended <wait
status>`. It exits when the command and all processes that the command has started are gone.

The socket is also a lifeline. Its other end is closed when the executor cancels the command or when the
process of the executor is killed; then the guard kills everything. On Linux, PR_SET_CHILD_SUBREAPER makes
every orphaned process of the command a child of the guard, even in another session, so the guard finds all of
them. On other systems it kills the process group of the command, and a process that has left the group
survives.
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
    for stream in (0, 1, 2):  # only the command has the streams now, so they end with it
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
    """Read the command: eight bytes with the size of the rest; the number of arguments; the arguments, of
    which the first is the path of the program; and NAME=value for each variable. Each field ends with a zero
    byte, which no field can contain."""
    size = int.from_bytes(read(lifeline, 8))
    count, *fields = read(lifeline, size).split(b"\0")[:-1]
    variables = (field.partition(b"=") for field in fields[int(count) :])
    return fields[: int(count)], {name: value for name, _, value in variables}


def read(lifeline: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = os.read(lifeline, size - len(data))
        if not chunk:
            sys.exit(0)  # the executor has closed the socket
        data += chunk
    return data


def exec_command(lifeline: int, folder: int, argv: list[bytes], environment: dict[bytes, bytes]) -> None:
    """In the child: run the command in its own session; on Linux it is killed when the guard dies."""
    try:
        guard = os.getppid()
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(127)
        for ignored in (
            signal.SIGPIPE,
            signal.SIGXFSZ,
        ):  # Python ignores them, and the command would inherit that
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
    """Wait for the command and return its wait status; None if the executor has closed the socket."""
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    within_ms = FAST_POLL_INTERVAL_MS
    with suppress(AttributeError, OSError):  # without pidfd_open, poll more often
        poll.register(os.pidfd_open(pid), select.POLLIN)
        within_ms = POLL_INTERVAL_MS
    while True:
        for ready, _ in poll.poll(within_ms):
            if ready == lifeline:
                return None  # the executor sends nothing more, so this is the end of file
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if os.getppid() != parent:  # it died, and a fork of it keeps the socket open
            return None


def kill_all(pid: int, is_linux: bool) -> None:
    """Kill the command, if it runs, and all its descendants.

    They are stopped first, until there are no new ones, and then killed: a stopped process cannot fork.
    """
    if not is_linux:
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        return
    give_up_at = time.monotonic() + GIVE_UP_AFTER_S  # a process of another user cannot be killed
    stopped: set[int] = set()
    while not reap_children() and time.monotonic() < give_up_at:
        found = find_descendants()
        for descendant in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(descendant, signal.SIGKILL if found <= stopped else signal.SIGSTOP)
        if found <= stopped:
            time.sleep(0.001)
        stopped = found


def reap_children() -> bool:
    """Reap every child that has ended. Returns True if no child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def find_descendants() -> set[int]:
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
