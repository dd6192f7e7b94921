"""A request to run a module in a fork of the warm server: see warm_processes.py.

    python -I -S warm_request.py SOCKET MODULE ARGUMENT...   runs a module, and exits with its code

The script has the place of a command in the shell of a page, so it must start fast: it imports little.

    caller --request, open files--> server --fork--> process
           <-----------pid-------------------------
           <--------exit code------
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence

MAX_FIRST_BYTES = 1 << 16
MAX_FILES = 8
NUMBER_BYTES = 4
KILLED = -9


def send_request(
    path: str, command: Sequence[str], environment: Mapping[str, str], folder: str, files: Mapping[int, int]
) -> socket.socket:
    """Ask for a process. The first word of the command is a module. `files` maps the file descriptors that
    the process will have to those of this one. Returns the connection."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    numbers = ",".join(map(str, files))
    parts = [folder, numbers, str(len(command)), *command, *variables]
    data = b"\0".join(map(os.fsencode, parts))
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        connection.sendall(len(data).to_bytes(NUMBER_BYTES, "big"))
        socket.send_fds(connection, [data[:MAX_FIRST_BYTES]], list(files.values()))
        connection.sendall(data[MAX_FIRST_BYTES:])
    except BaseException:
        connection.close()
        raise
    return connection


def receive_request(
    connection: socket.socket,
) -> tuple[list[str], dict[str, str], str, dict[int, int]]:
    """The command, the environment, the folder and the files of a request. The caller closes the files."""
    size = int.from_bytes(connection.recv(NUMBER_BYTES, socket.MSG_WAITALL), "big")
    data, received, _, _ = socket.recv_fds(connection, min(size, MAX_FIRST_BYTES), MAX_FILES)
    while len(data) < size:
        data += connection.recv(size - len(data))
    folder, numbers, count, *others = map(os.fsdecode, data.split(b"\0"))
    command, variables = others[: int(count)], others[int(count) :]
    environment = dict(one.split("=", 1) for one in variables)
    return command, environment, folder, dict(zip(map(int, numbers.split(",")), received, strict=True))


def send_number(connection: socket.socket, number: int) -> None:
    connection.sendall(number.to_bytes(NUMBER_BYTES, "big", signed=True))


def receive_number(connection: socket.socket) -> int:
    """A pid or an exit code; the code of a killed process if the server has ended."""
    data = connection.recv(NUMBER_BYTES, socket.MSG_WAITALL)
    return int.from_bytes(data, "big", signed=True) if data else KILLED


def main(path: str, *command: str) -> int:
    with send_request(path, command, os.environ, os.getcwd(), {0: 0, 1: 1, 2: 2}) as connection:
        receive_number(connection)
        code = receive_number(connection)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
