"""The command `orchestrator` for the console blocks of long pages; it imports its modules once.

    python warm_command.py serve SOCKET               imports the command line, and serves until killed
    python -I -S warm_command.py SOCKET ARGUMENT...   runs one command, and exits with its code

The server forks a child for each command. The child gets the arguments, the folder, the environment and the
open files of the caller, so that pipes, redirections and terminals work as with a new process. The child is a
copy of a process that has imported modules and done nothing else.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

MAX_REQUEST_BYTES = 1 << 20
END = b"\0\0"


def call(path: str, arguments: list[str]) -> int:
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    parts = [os.getcwd(), str(len(arguments)), *arguments, *variables]
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [b"\0".join(map(os.fsencode, parts)) + END], [0, 1, 2])
        code = server.recv(16)
    return int(code) if code else 1  # without a code: it was killed


def serve(path: str) -> None:
    from orchestrator.cli.main import main  # noqa: F401
    from orchestrator.wiring import make_client  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for the children
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        while True:
            caller, _ = listener.accept()
            if not os.fork():
                listener.close()
                _run(caller)
            caller.close()


def _run(caller: socket.socket) -> None:
    """Run the command of a caller, send it the exit code, and exit."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        folder, arguments, variables = _take_request(caller)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        # As `python -m orchestrator` does. The caller may have another PYTHONPATH than the server.
        sys.path[0:0] = [folder, *filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))]
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, closefd=False)
        code = _main(arguments)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        caller.sendall(str(code).encode())
        os._exit(0)


def _take_request(caller: socket.socket) -> tuple[str, list[str], dict[str, str]]:
    data, files, _, _ = socket.recv_fds(caller, MAX_REQUEST_BYTES, 3)
    while not data.endswith(END):
        data += caller.recv(MAX_REQUEST_BYTES)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    folder, count, *others = [os.fsdecode(part) for part in data.removesuffix(END).split(b"\0")]
    variables = dict(one.split("=", 1) for one in others[int(count) :])
    return folder, others[: int(count)], variables


def _main(arguments: list[str]) -> int:
    from orchestrator.cli.main import main

    try:
        main(arguments, prog_name="orchestrator")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(call(sys.argv[1], sys.argv[2:]))
