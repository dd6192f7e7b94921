"""Large values are passed by reference.

An output has so many bytes at the most (`limits.max_output_bytes`), and so have the inputs of a start. Of
one that has more, the largest of its uppermost values are put into a payload store, and references stay:

    {"rows": [...], "count": 70000}
    {"rows": {"$payload": "<SHA-256 of its JSON>", "bytes": 5242880}, "count": 70000}

A worker loads every reference in the inputs of a step before it calls the executor. In between, expressions
pass a reference on as the value that it stands for, and cannot look inside.

A reference names its content: the same content has the same one, and who does not know the content cannot
make it up. Data that looks like a reference therefore gains nothing: at worst its own step fails.

The work-horse of every step imports this: nothing heavy may be needed here.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from orchestrator.application.errors import ExpressionError, PayloadMissing, StoreError, TooLarge
from orchestrator.application.values.paths import Path, render_path

MAX_INPUT_BYTES = 1024 * 1024
"""Of the inputs of a start, also that of a child."""
MAX_JOB_BYTES = 8 * 1024 * 1024
"""Of the inputs of one job."""
MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
"""Of one value that is kept by reference, unless a worker is told otherwise."""
MAX_LOADED_FACTOR = 4
"""All values of one step together may have so many times what one of them may have."""

PAYLOAD_KEY = "$payload"
REFERENCE_KEYS = frozenset({PAYLOAD_KEY, "bytes"})
_ID = re.compile("[0-9a-f]{64}")
_WORTHWHILE = 0.9

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_measure = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


Fetch = Callable[[str], bytes | None]


class PayloadStore(Protocol):
    """A payload store: keeps bytes under the id of their content."""

    def put(self, payload_id: str, data: bytes) -> None:
        """Keep it, for a full term from now on. Unavailable when that may be tried again."""
        ...

    def get(self, payload_id: str) -> bytes | None:
        """What was put; its term begins anew, where it can. None when it is not there, or no longer."""
        ...


# References


def is_reference(value: Any) -> bool:
    if type(value) is not dict or len(value) != 2 or PAYLOAD_KEY not in value:
        return False
    size = value.get("bytes")
    return is_payload_id(value[PAYLOAD_KEY]) and type(size) is int and size >= 0


def is_payload_id(value: Any) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def has_references(value: Any) -> bool:
    """Whether it is one, or has one anywhere inside."""
    return any(True for _ in _references(value, ()))


def opaque_reference_error(reference: Mapping[str, Any], what: str) -> ExpressionError:
    """Why an expression cannot do something with a reference, and who can."""
    return ExpressionError(
        f"{what} is kept by reference ({reference['bytes']:,} bytes), and an expression cannot look inside:"
        " give the whole value to an executor, such as transform, or to a step of your own"
    )


# Putting


@dataclass(frozen=True, slots=True)
class OffloadedText:
    """A JSON text that is within its limit, and the payloads that it refers to, as a store keeps them."""

    text: str
    payloads: Mapping[str, bytes]

    def put_into(self, payloads: PayloadStore) -> None:
        for payload_id, data in self.payloads.items():
            payloads.put(payload_id, data)


def offload(text: str, limit: int, most: int, what: str, setting: str) -> OffloadedText:
    """Take so many values out of a JSON text that the rest has at most `limit` bytes, the largest first.

    `most` is how many bytes one value may have. The error calls the whole `what`, and names the `setting`
    that limits it.
    """
    size = len(text.encode())
    if size <= limit:
        return OffloadedText(text, {})
    whole = json.loads(text)
    if not isinstance(whole, dict):
        raise TooLarge(
            f"{what} has {size:,} bytes; {setting} allows {limit:,}, and only the values of an object can be"
            " passed by reference"
        )
    parts = {key: _encode(value) for key, value in whole.items()}
    sizes = {key: len(part.encode()) for key, part in parts.items()}
    kept: dict[str, bytes] = {}
    left = len(_joined(parts).encode())
    for key in sorted(sizes, key=lambda one: sizes[one], reverse=True):
        if left <= limit:
            break
        payload_id = sha256(parts[key].encode()).hexdigest()
        reference = _encode({PAYLOAD_KEY: payload_id, "bytes": sizes[key]})
        if len(reference) >= sizes[key]:
            break  # the others are even smaller
        if sizes[key] > most:
            raise TooLarge(
                f"{key!r} of {what} has {sizes[key]:,} bytes; a value that is passed by reference may have"
                f" {most:,} (ORCHESTRATOR_PAYLOAD_MAX_BYTES)"
            )
        kept[payload_id] = pack(parts[key])
        left += len(reference) - sizes[key]
        parts[key] = reference
    if left > limit:
        raise TooLarge(
            f"{what} has {size:,} bytes; {setting} allows {limit:,}, and without what can be passed by"
            f" reference it still has {left:,}: put what is large under one key"
        )
    return OffloadedText(_joined(parts), kept)


def offload_output(text: str, limit: int, most: int, step: str) -> OffloadedText:
    return offload(text, limit, most, f"the output of step {step!r}", "limits.max_output_bytes")


def offload_inputs(text: str, most: int) -> OffloadedText:
    """Of a start."""
    return offload(text, MAX_INPUT_BYTES, most, "the object of inputs", "a start")


def payload_limit(environment: Mapping[str, str]) -> int:
    """How many bytes one value may have that is kept by reference."""
    return read_positive_int(environment, "ORCHESTRATOR_PAYLOAD_MAX_BYTES", MAX_PAYLOAD_BYTES)


def read_positive_int(environment: Mapping[str, str], variable: str, otherwise: int) -> int:
    """A setting; StoreError when it is no number above zero."""
    text = environment.get(variable, "").strip()
    if not text:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) > 0):
        raise StoreError(f"{variable} must be a whole number above zero, not {text[:100]!r}")
    return int(text)


def _joined(parts: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{_encode(key)}:{part}" for key, part in parts.items()) + "}"


def check_inputs_size(inputs: Mapping[str, Any], step: str, most: int) -> None:
    """ExpressionError when the inputs of a step are too large to be carried, whatever they were made of."""
    if len(repr(inputs)) * 6 <= most:
        return  # so many bytes has a character at the most, when it is escaped
    size = len(_measure(inputs).encode())
    if size > most:
        raise ExpressionError(
            f"the inputs of step {step!r} have {size:,} bytes; at most {most:,} can be carried: pass large"
            " values whole, as a step has put them out by reference, and build new ones in a step"
        )


# Loading


def load(value: Any, fetch: Fetch, most: int, root: str) -> Any:
    """The value with every reference in it replaced by what it refers to; as it is when it has none.

    What is inside of a payload is data, whatever it looks like. PayloadMissing names the place under `root`.
    """
    found = list(_references(value, (root,)))
    if not found:
        return value
    texts: dict[str, bytes] = {}
    total = 0
    for path, reference in found:
        payload_id = reference[PAYLOAD_KEY]
        if payload_id not in texts:
            where = f"{render_path(path)} is kept by reference ({reference['bytes']:,} bytes)"
            texts[payload_id] = fetch_payload(payload_id, fetch, most, f"{where}, and its payload")
        total += len(texts[payload_id])
        if total > MAX_LOADED_FACTOR * most:
            raise TooLarge(
                f"the values under {root} that are kept by reference have more than"
                f" {MAX_LOADED_FACTOR * most:,} bytes in all (ORCHESTRATOR_PAYLOAD_MAX_BYTES allows a quarter of that for each):"
                " let several steps work on a part of them each"
            )
    return _filled(value, texts)


def fetch_payload(payload_id: str, fetch: Fetch, most: int, what: str = "the payload") -> bytes:
    """The JSON of one payload; PayloadMissing when it is not there, or is not what its id says."""
    data = fetch(payload_id)
    if data is None:
        raise PayloadMissing(
            f"{what} {payload_id} is not in the store: its time may have passed"
            " (ORCHESTRATOR_PAYLOAD_TTL_S), or this process has another store (ORCHESTRATOR_PAYLOADS)"
        )
    try:
        raw = unpack(data, most)
    except zlib.error:
        raw = b""
    if sha256(raw).hexdigest() != payload_id:
        raise PayloadMissing(
            f"{what} {payload_id} is damaged in the store, or larger than ORCHESTRATOR_PAYLOAD_MAX_BYTES"
            " allows here"
        )
    return raw


def _references(value: Any, path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    if is_reference(value):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict | list):
                yield from _references(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from _references(item, (*path, index))


def _filled(value: Any, texts: Mapping[str, bytes]) -> Any:
    """Each reference is parsed by itself: whoever is given a value twice may change one of the two."""
    if is_reference(value):
        return json.loads(texts[value[PAYLOAD_KEY]])
    if isinstance(value, dict):
        return {key: _filled(item, texts) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, texts) for item in value]
    return value


# As a store keeps it


def pack(text: str) -> bytes:
    """The text, compressed if that pays. No JSON begins as what zlib makes does."""
    data = text.encode()
    packed = zlib.compress(data, 1)
    return packed if len(packed) < _WORTHWHILE * len(data) else data


def unpack(data: bytes, most: int) -> bytes:
    """The text as bytes; of one with more than `most`, not all."""
    if data[:1] != b"x":
        return data
    return zlib.decompressobj().decompress(data, most + 1)
