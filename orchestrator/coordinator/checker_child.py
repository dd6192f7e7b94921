"""The process that checks the documents of a coordinator, one after the other. See `checker_process.py`.

    python -m orchestrator.coordinator.checker_child LIFELINE DEADLINE_S MAX_MEMORY_BYTES

It reads documents from its standard input and writes replies to its standard output. It exits with its
coordinator: at the end of its input, and when the pipe LIFELINE is closed, also in the middle of a check. The
kernel ends it when a check takes more than DEADLINE_S of processor time.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from contextlib import suppress

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.values.document_limits import TOO_BIG_HINT
from orchestrator.coordinator.checker_codec import (
    Reply,
    dump_reply,
    load_request,
    read_message,
    write_message,
)
from orchestrator.coordinator.large_document import LargeDocument
from orchestrator.processes import exit_with_parent, limit_resource


def serve(lifeline: int, deadline_s: float, max_memory: int) -> None:
    exit_with_parent(lifeline)
    _limit(resource.RLIMIT_DATA, max_memory)
    with suppress(EOFError, BrokenPipeError):
        while True:
            document = load_request(read_message(sys.stdin.buffer))
            _limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + deadline_s))
            write_message(sys.stdout.buffer, _check_in_memory(document, max_memory))


def _check_in_memory(document: LargeDocument, max_memory: int) -> bytes:
    try:
        return dump_reply(check_document(document))
    except MemoryError:
        message = f"the document could not be checked within {max_memory // 1024**2:,} MiB of memory"
    return dump_reply((Problem("", "too_big", message, TOO_BIG_HINT),))


def check_document(document: LargeDocument) -> Reply:
    """The spec of a document, its problems, or the text of an unexpected error."""
    try:
        return document.load()
    except InvalidSpec as error:
        return error.problems
    except MemoryError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _limit(kind: int, most: int) -> None:
    with suppress(ValueError, OSError):  # some systems have no such limit
        limit_resource(kind, most)


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
