"""Large values are passed by reference.

The size of an output is limited (`limits.max_output_bytes`), and so is the size of the inputs of a start. If
an object is larger, its largest top-level values go to a payload store, and references replace them:

    {"rows": [...], "count": 70000}
    {"rows": {"$payload": "<SHA-256 of its JSON>", "bytes": 5242880}, "count": 70000}

A worker loads every reference in the inputs of a step before it calls the executor. Expressions can pass a
reference on in place of its value, but cannot read inside the value.

A reference is the hash of its content: equal content has equal references, and a reference cannot be guessed
without the content. So data that looks like a reference gives no access to other data; at worst its own step
fails.

The work-horse of every step imports this module, so it must not import anything heavy.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from orchestrator.application.errors import ExpressionError, PayloadMissing, TooLarge
from orchestrator.application.values.paths import Path, render_path

MAX_INPUT_BYTES = 1024 * 1024
"""The limit for the inputs of a start, including the start of a child workflow."""
MAX_JOB_BYTES = 8 * 1024 * 1024
"""The limit for the inputs of one job."""
MAX_LOADED_FACTOR = 4
"""The values of one step together may be this many times larger than the limit for one value."""

PAYLOAD_KEY = "$payload"
REFERENCE_KEYS = frozenset({PAYLOAD_KEY, "bytes"})
_ID = re.compile("[0-9a-f]{64}")
_MAX_COMPRESSED_RATIO = 0.9
_NESTED = (dict, list)

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_measure = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


Fetch = Callable[[str], bytes | None]


class PayloadStore(Protocol):
    """Stores bytes under the id of their content."""

    def put(self, payload_id: str, data: bytes) -> None:
        """Store the bytes and restart their expiry. Raises Unavailable if a later try may succeed."""
        ...

    def get(self, payload_id: str) -> bytes | None:
        """Return the bytes, or None if they are absent or have expired. Restarts the expiry where it can."""
        ...


# References


def is_payload_reference(value: Any) -> bool:
    if type(value) is not dict or len(value) != 2 or PAYLOAD_KEY not in value:
        return False
    size = value.get("bytes")
    return is_payload_id(value[PAYLOAD_KEY]) and type(size) is int and size >= 0


def is_payload_id(value: Any) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def has_references(value: Any) -> bool:
    """Whether a value is a reference or contains one at any depth. A loop, because every job is checked."""
    if is_payload_reference(value):
        return True
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(item, _NESTED) and has_references(item):
            return True
    return False


def opaque_reference_error(reference: Mapping[str, Any], what: str) -> ExpressionError:
    """Build the error for an expression that reads inside a reference, with advice."""
    return ExpressionError(
        f"{what} is kept by reference ({reference['bytes']:,} bytes), and an expression cannot read inside"
        " it: pass the whole value to an executor, such as transform, or to a step of your own"
    )


# Storing


@dataclass(frozen=True, slots=True)
class OffloadedText:
    """A JSON text within its limit, and the payloads it refers to, packed for the store."""

    text: str
    payloads: Mapping[str, bytes]

    def put_into(self, payloads: PayloadStore) -> None:
        for payload_id, data in self.payloads.items():
            payloads.put(payload_id, data)


def offload(text: str, limit: int, max_value_bytes: int, what: str, setting: str) -> OffloadedText:
    """Replace the largest values of a JSON object by references until its text has at most `limit` bytes.

    One value may have `max_value_bytes`. Errors name the object by `what`, and the limit by `setting`.
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
    payloads: dict[str, bytes] = {}
    left = len(_join_object(parts).encode())
    for key in sorted(sizes, key=lambda one: sizes[one], reverse=True):
        if left <= limit:
            break
        payload_id = sha256(parts[key].encode()).hexdigest()
        reference = _encode({PAYLOAD_KEY: payload_id, "bytes": sizes[key]})
        if len(reference) >= sizes[key]:
            break  # the remaining values are even smaller
        if sizes[key] > max_value_bytes:
            raise TooLarge(
                f"{key!r} of {what} has {sizes[key]:,} bytes; a value that is passed by reference may have"
                f" {max_value_bytes:,} (ORCHESTRATOR_PAYLOAD_MAX_BYTES)"
            )
        payloads[payload_id] = pack(parts[key])
        left += len(reference) - sizes[key]
        parts[key] = reference
    if left > limit:
        raise TooLarge(
            f"{what} has {size:,} bytes; {setting} allows {limit:,}, and without what can be passed by"
            f" reference it still has {left:,}: put the large data under one key"
        )
    return OffloadedText(_join_object(parts), payloads)


def offload_output(text: str, limit: int, max_value_bytes: int, step: str) -> OffloadedText:
    return offload(text, limit, max_value_bytes, f"the output of step {step!r}", "limits.max_output_bytes")


def offload_inputs(text: str, max_value_bytes: int) -> OffloadedText:
    """Offload the inputs of a start."""
    return offload(text, MAX_INPUT_BYTES, max_value_bytes, "the object of inputs", "a start")


def _join_object(parts: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{_encode(key)}:{part}" for key, part in parts.items()) + "}"


def check_inputs_size(inputs: Mapping[str, Any], step: str, max_bytes: int) -> None:
    """Raise ExpressionError if the inputs of a step are too large for its job."""
    size = len(_measure(inputs).encode())
    if size > max_bytes:
        raise inputs_too_large(step, f"{size:,}", max_bytes)


def inputs_too_large(step: str, size: str, max_bytes: int) -> ExpressionError:
    return ExpressionError(
        f"the inputs of step {step!r} have {size} bytes; the limit is {max_bytes:,}: pass large values"
        " unchanged, so that they stay references, and build new large values in a step"
    )


# Loading


def load_payloads(value: Any, fetch: Fetch, max_bytes: int, root: str) -> Any:
    """Return the value with every reference replaced by its content; the value itself if it has none.

    References inside a payload are data and are not loaded. PayloadMissing names the path below `root`.
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
            texts[payload_id] = fetch_payload(payload_id, fetch, max_bytes, f"{where}, and its payload")
        total += len(texts[payload_id])
        if total > MAX_LOADED_FACTOR * max_bytes:
            raise TooLarge(
                f"the values under {root} that are kept by reference have more than"
                f" {MAX_LOADED_FACTOR * max_bytes:,} bytes in all (ORCHESTRATOR_PAYLOAD_MAX_BYTES allows a"
                " quarter of that for each): split the work over several steps"
            )
    return _fill_payloads(value, texts)


def fetch_payload(payload_id: str, fetch: Fetch, max_bytes: int, what: str = "the payload") -> bytes:
    """Return the JSON of one payload; raise PayloadMissing if it is absent or its content has another id."""
    data = fetch(payload_id)
    if data is None:
        raise PayloadMissing(
            f"{what} {payload_id} is not in the store: it may have expired"
            " (ORCHESTRATOR_PAYLOAD_TTL_S), or this process uses another store (ORCHESTRATOR_PAYLOADS)"
        )
    try:
        raw = unpack(data, max_bytes)
    except zlib.error:
        raw = b""
    if sha256(raw).hexdigest() != payload_id:
        raise PayloadMissing(
            f"{what} {payload_id} is damaged in the store, or larger than ORCHESTRATOR_PAYLOAD_MAX_BYTES"
            " allows here"
        )
    return raw


def _references(value: Any, path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    if is_payload_reference(value):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict | list):
                yield from _references(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from _references(item, (*path, index))


def _fill_payloads(value: Any, texts: Mapping[str, bytes]) -> Any:
    """Parse a payload again for each reference to it, because an executor may change one of the copies."""
    if is_payload_reference(value):
        return json.loads(texts[value[PAYLOAD_KEY]])
    if isinstance(value, dict):
        return {key: _fill_payloads(item, texts) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill_payloads(item, texts) for item in value]
    return value


# The format in the store


def pack(text: str) -> bytes:
    """Return the text as bytes, compressed if that saves space. Only compressed data starts with `x`."""
    data = text.encode()
    packed = zlib.compress(data, 1)
    return packed if len(packed) < _MAX_COMPRESSED_RATIO * len(data) else data


def unpack(data: bytes, max_bytes: int) -> bytes:
    """Return the text as bytes; stop decompressing at `max_bytes` + 1."""
    if data[:1] != b"x":
        return data
    return zlib.decompressobj().decompress(data, max_bytes + 1)
