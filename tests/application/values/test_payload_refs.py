"""Large values by reference: which values are offloaded, and how they are loaded."""

from __future__ import annotations

import json
import zlib
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.application.errors import ExpressionError, PayloadMissing, TooLarge
from orchestrator.application.values.payload_refs import (
    MAX_LOADED_FACTOR,
    PAYLOAD_KEY,
    OffloadedText,
    check_inputs_size,
    has_references,
    is_payload_reference,
    load_payloads,
    offload,
    offload_inputs,
    offload_output,
    pack,
    unpack,
)

MAX_VALUE_BYTES = 1_000_000
ID = "0" * 64
REFERENCE = {PAYLOAD_KEY: ID, "bytes": 5}

Json = dict[str, Any]

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner, max_size=8),
)


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def size_of(value: Any) -> int:
    return len(dumped(value).encode())


def offloaded(value: Any, limit: int, max_bytes: int = MAX_VALUE_BYTES) -> OffloadedText:
    return offload_output(dumped(value), limit, max_bytes, "a")


def loaded(value: Any, stored: Any, max_bytes: int = MAX_VALUE_BYTES) -> Any:
    return load_payloads(value, stored.get, max_bytes, "inputs")


def reference_to(value: Any) -> Json:
    return {PAYLOAD_KEY: sha256(dumped(value).encode()).hexdigest(), "bytes": size_of(value)}


@pytest.mark.untraced
@given(st.dictionaries(st.text(max_size=20), VALUES, max_size=12), st.integers(2, 3_000))
def test_an_offloaded_text_fits_its_limit_and_loads_back_unchanged(value: Json, limit: int) -> None:
    assume(not has_references(value))
    try:
        found = offloaded(value, limit)
    except TooLarge:
        least = {key: min([one, reference_to(one)], key=size_of) for key, one in value.items()}
        assert size_of(least) > limit
        return

    assert len(found.text.encode()) <= limit
    left = json.loads(found.text)
    assert list(left) == list(value)
    assert loaded(left, found.payloads) == value
    assert bool(found.payloads) == (size_of(value) > limit)


def test_a_text_within_the_limit_stays_unchanged() -> None:
    text = dumped({"a": "ü" * 100})

    assert offload_output(text, len(text.encode()), MAX_VALUE_BYTES, "a") == OffloadedText(text, {})
    assert offload_output(text, len(text.encode()) - 1, MAX_VALUE_BYTES, "a").payloads


def test_the_largest_values_are_offloaded_first_and_no_more_than_needed() -> None:
    value = {"small": 1, "large": "x" * 900, "larger": "y" * 1_000, "largest": "z" * 1_100}

    left = json.loads(offloaded(value, 1_500).text)

    assert left == {
        **value,
        "larger": reference_to(value["larger"]),
        "largest": reference_to(value["largest"]),
    }


def test_equal_content_has_one_reference_and_is_stored_once() -> None:
    found = offloaded({"a": ["x" * 500], "b": ["x" * 500]}, 300)

    left = json.loads(found.text)
    assert left["a"] == left["b"] == reference_to(["x" * 500])
    assert list(found.payloads) == [left["a"][PAYLOAD_KEY]]


def test_a_value_shorter_than_a_reference_is_never_offloaded() -> None:
    with pytest.raises(TooLarge) as raised:
        offloaded({str(n): "x" * 50 for n in range(100)}, 1_000)

    assert str(raised.value) == (
        "the output of step 'a' has 5,791 bytes; limits.max_output_bytes allows 1,000, and without what can"
        " be passed by reference it still has 5,791: put the large data under one key"
    )


def test_a_reference_that_is_passed_on_stays_unchanged() -> None:
    value = {"old": REFERENCE, "new": "x" * 1_000}

    left = json.loads(offloaded(value, 500).text)

    assert left == {"old": REFERENCE, "new": reference_to("x" * 1_000)}


@pytest.mark.parametrize("value", [["x" * 1_000], "x" * 1_000])
def test_only_values_of_an_object_can_be_offloaded(value: Any) -> None:
    with pytest.raises(TooLarge, match="only the values of an object can be passed by reference"):
        offloaded(value, 500)


def test_one_value_has_a_size_limit() -> None:
    assert offloaded({"rows": "x" * 998}, 500, max_bytes=1_000).payloads

    with pytest.raises(TooLarge) as raised:
        offloaded({"rows": "x" * 999}, 500, max_bytes=1_000)

    assert str(raised.value) == (
        "'rows' of the output of step 'a' has 1,001 bytes; a value that is passed by reference may have 1,000"
        " (ORCHESTRATOR_PAYLOAD_MAX_BYTES)"
    )


def test_the_inputs_of_a_start_are_limited_to_a_megabyte() -> None:
    text = dumped({"rows": "x" * (1024 * 1024 - 11)})

    assert not offload_inputs(text, MAX_VALUE_BYTES).payloads
    assert offload_inputs(dumped({"rows": "x" * (1024 * 1024 - 10)}), 2 * MAX_VALUE_BYTES).payloads
    with pytest.raises(TooLarge, match=r"the object of inputs has .* bytes; a start allows 1,048,576"):
        offload_inputs(dumped(["x" * 1024 * 1024]), MAX_VALUE_BYTES)


def test_all_payloads_are_stored() -> None:
    found, shelf = offloaded({"a": "x" * 500, "b": "y" * 500}, 300), Shelf()

    found.put_into(shelf)

    assert shelf.stored == found.payloads
    assert len(shelf.stored) == 2


class Shelf:
    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def put(self, payload_id: str, data: bytes) -> None:
        self.stored[payload_id] = data

    def get(self, payload_id: str) -> bytes | None:
        return self.stored.get(payload_id)


# ---- what a reference is


@pytest.mark.parametrize(
    "value",
    [
        {PAYLOAD_KEY: ID},
        {PAYLOAD_KEY: ID, "size": 5},
        {PAYLOAD_KEY: ID, "bytes": 5, "more": 1},
        {PAYLOAD_KEY: ID, "bytes": "5"},
        {PAYLOAD_KEY: ID, "bytes": True},
        {PAYLOAD_KEY: ID, "bytes": -1},
        {PAYLOAD_KEY: "0" * 63, "bytes": 5},
        {PAYLOAD_KEY: "A" * 64, "bytes": 5},
        {PAYLOAD_KEY: f"{'0' * 64}\n", "bytes": 5},
        {PAYLOAD_KEY: 5, "bytes": 5},
        {"a": 1, "b": 2},
        [ID, 5],
        ID,
        None,
    ],
)
def test_other_data_is_not_a_reference(value: Any) -> None:
    assert not is_payload_reference(value)
    assert not has_references([{"a": value}])


def test_a_reference_is_found_at_any_depth() -> None:
    assert is_payload_reference(REFERENCE)
    assert has_references(REFERENCE)
    assert has_references({"a": [1, {"b": [[REFERENCE]]}]})


# ---- loading


def test_references_are_loaded_wherever_they_are_and_nothing_else_changes() -> None:
    rows = [1, {"ž": None}]
    value = {"a": reference_to(rows), "b": [{"c": reference_to("text")}, 7], "d": {"e": "x"}}

    found = loaded(value, {reference_to(one)[PAYLOAD_KEY]: pack(dumped(one)) for one in (rows, "text")})

    assert found == {"a": rows, "b": [{"c": "text"}, 7], "d": {"e": "x"}}


def test_a_value_without_references_is_returned_itself_and_nothing_is_fetched() -> None:
    value = {"a": [1, {"b": 2}]}

    def fetch(payload_id: str) -> bytes:
        raise AssertionError(payload_id)

    assert load_payloads(value, fetch, MAX_VALUE_BYTES, "inputs") is value


def test_a_payload_is_fetched_once_and_each_reference_to_it_is_a_value_of_its_own() -> None:
    reference, fetched = reference_to([1]), list[str]()

    def fetch(payload_id: str) -> bytes:
        fetched.append(payload_id)
        return pack("[1]")

    found = load_payloads([reference, reference], fetch, MAX_VALUE_BYTES, "inputs")
    found[0].append(2)

    assert found == [[1, 2], [1]]
    assert fetched == [reference[PAYLOAD_KEY]]


def test_the_content_of_a_payload_is_data_even_if_it_looks_like_a_reference() -> None:
    outer = {"inner": REFERENCE}

    assert loaded(reference_to(outer), {reference_to(outer)[PAYLOAD_KEY]: pack(dumped(outer))}) == outer


def test_a_missing_payload_is_named_with_its_path() -> None:
    with pytest.raises(PayloadMissing) as raised:
        loaded({"b": [0, {"rows": REFERENCE}]}, {})

    assert str(raised.value) == (
        f"inputs.b[1].rows is kept by reference (5 bytes), and its payload {ID} is not in the store: it may"
        " have expired (ORCHESTRATOR_PAYLOAD_TTL_S), or this process uses another store"
        " (ORCHESTRATOR_PAYLOADS)"
    )


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'"another"', id="another value"),
        pytest.param(b"x\x00\x01\x02", id="not what zlib makes"),
        pytest.param(zlib.compress(b'"text"')[:-6], id="cut"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_a_damaged_payload_counts_as_missing(data: bytes) -> None:
    with pytest.raises(PayloadMissing, match=r"^inputs is kept by reference .* is damaged"):
        loaded(reference_to("text"), {reference_to("text")[PAYLOAD_KEY]: data})


def test_unpacking_stops_at_the_limit_of_one_value() -> None:
    bomb = "x" * 1_000_000
    stored = {reference_to(bomb)[PAYLOAD_KEY]: pack(dumped(bomb))}

    assert len(unpack(pack(bomb), 1_000)) == 1_001
    with pytest.raises(PayloadMissing, match="larger than ORCHESTRATOR_PAYLOAD_MAX_BYTES allows here"):
        loaded(reference_to(bomb), stored, max_bytes=1_000)


def test_the_values_of_one_step_have_a_common_size_limit() -> None:
    value = "x" * 98
    stored = {reference_to(value)[PAYLOAD_KEY]: pack(dumped(value))}

    assert len(loaded([reference_to(value)] * MAX_LOADED_FACTOR, stored, max_bytes=100)) == MAX_LOADED_FACTOR
    with pytest.raises(TooLarge, match=r"the values under inputs .* have more than 400 bytes in all"):
        loaded([reference_to(value)] * (MAX_LOADED_FACTOR + 1), stored, max_bytes=100)


# ---- the format in the store


def test_a_text_is_compressed_if_that_saves_space() -> None:
    dense = sha256(b"1").hexdigest() + sha256(b"2").hexdigest()

    assert len(pack("x" * 1_000)) < 100
    assert pack(f'"{dense[:20]}"') == f'"{dense[:20]}"'.encode()
    for text in ("x" * 1_000, f'"{dense}"', '"ž"', "1", "[]"):
        assert unpack(pack(f'["{text}"]'), MAX_VALUE_BYTES) == f'["{text}"]'.encode()


# ---- inputs of a job, settings


def test_the_inputs_of_a_job_have_a_size_limit() -> None:
    check_inputs_size({"a": "ž" * 46}, "b", 100)  # 100 bytes

    with pytest.raises(ExpressionError) as raised:
        check_inputs_size({"a": "ž" * 46 + "x"}, "b", 100)

    assert str(raised.value) == (
        "the inputs of step 'b' have 101 bytes; the limit is 100: pass large values unchanged, so that"
        " they stay references, and build new large values in a step"
    )
    check_inputs_size({"a": "x" * 17}, "b", 100)


def test_the_error_of_offload_names_the_value_and_the_setting() -> None:
    with pytest.raises(TooLarge, match=r"^this has 1,000 bytes; that allows 10, and without"):
        offload(dumped({"x" * 994: 1}), 10, MAX_VALUE_BYTES, "this", "that")
