"""What a coordinator and the process that checks its documents send to each other.

Each message has its length before it. A request is a document. A reply is the spec, the problems
of the document, or the text of an unexpected error. The spec is pickled, because the coordinator must not pay
for the check again. Documents come from strangers, so the coordinator unpickles only the classes of a spec.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
from typing import IO, Any

from orchestrator.application.errors import Problem
from orchestrator.application.spec import model
from orchestrator.application.spec.graph import Graph
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.coordinator.large_document import LargeDocument

Reply = LoadedSpec | tuple[Problem, ...] | str

NEW, STORED = b"n", b"s"
LENGTH_BYTES = 8
MAX_MESSAGE_BYTES = 1024 * 1024 * 1024

_SPEC_CLASSES = [
    one for one in vars(model).values() if isinstance(one, type) and dataclasses.is_dataclass(one)
]
_CLASSES = {(one.__module__, one.__qualname__): one for one in (*_SPEC_CLASSES, Graph, Problem)}


def write_message(stream: IO[bytes], message: bytes) -> None:
    stream.write(len(message).to_bytes(LENGTH_BYTES, "big"))
    stream.write(message)
    stream.flush()


def read_message(stream: IO[bytes]) -> bytes:
    """The next message; EOFError when the other process is gone."""
    size = int.from_bytes(_read(stream, LENGTH_BYTES), "big")
    if size > MAX_MESSAGE_BYTES:
        raise EOFError(f"a message of {size:,} bytes")
    return _read(stream, size)


def _read(stream: IO[bytes], size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError("the pipe is closed")
    return found


def dump_request(document: LargeDocument) -> bytes:
    return (STORED if document.is_stored else NEW) + document.text.encode(errors="surrogatepass")


def load_request(message: bytes) -> LargeDocument:
    return LargeDocument(message[1:].decode(errors="surrogatepass"), message[:1] == STORED)


def dump_reply(reply: Reply) -> bytes:
    return pickle.dumps(reply, pickle.HIGHEST_PROTOCOL)


def load_reply(message: bytes) -> Reply:
    """The reply in a message; UnpicklingError if it has anything else than a spec or problems."""
    found: Reply = _SpecUnpickler(io.BytesIO(message)).load()
    return found


class _SpecUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = _CLASSES.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"{module}.{name} is not a part of a spec")
        return found
