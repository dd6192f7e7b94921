"""Large values by reference: what is taken out of a text, and how it comes back."""

from __future__ import annotations

import json
import zlib
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.application.errors import ExpressionError, PayloadMissing, StoreError, TooLarge
from orchestrator.application.values.payload_refs import (
    MAX_LOADED_FACTOR,
    MAX_PAYLOAD_BYTES,
    PAYLOAD_KEY,
    OffloadedText,
    check_inputs_size,
    has_references,
    is_reference,
    load,
    offload,
    offload_inputs,
    offload_output,
    pack,
    payload_limit,
    read_positive_int,
    unpack,
)

MOST = 1_000_000
ID = "0" * 64
REFERENCE = {PAYLOAD_KEY: ID, "bytes": 5}

Json = dict[str, Any]

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner, max_size=8),
)


def written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def size_of(value: Any) -> int:
    return len(written(value).encode())


def stowed(value: Any, limit: int, most: int = MOST) -> OffloadedText:
    return offload_output(written(value), limit, most, "a")


def loaded(value: Any, kept: Any, most: int = MOST) -> Any:
    return load(value, kept.get, most, "inputs")


def reference_to(value: Any) -> Json:
    return {PAYLOAD_KEY: sha256(written(value).encode()).hexdigest(), "bytes": size_of(value)}


@given(st.dictionaries(st.text(max_size=20), VALUES, max_size=12), st.integers(2, 3_000))
def test_what_is_stowed_fits_and_comes_back(value: Json, limit: int) -> None:
    assume(not has_references(value))
    try:
        found = stowed(value, limit)
    except TooLarge:
        least = {key: min([one, reference_to(one)], key=size_of) for key, one in value.items()}
        assert size_of(least) > limit
        return

    assert len(found.text.encode()) <= limit
    left = json.loads(found.text)
    assert list(left) == list(value)
    assert loaded(left, found.payloads) == value
    assert bool(found.payloads) == (size_of(value) > limit)


def test_what_fits_stays_as_it_is_to_the_last_byte() -> None:
    text = written({"a": "ü" * 100})

    assert offload_output(text, len(text.encode()), MOST, "a") == OffloadedText(text, {})
    assert offload_output(text, len(text.encode()) - 1, MOST, "a").payloads


def test_the_largest_go_first_and_no_more_than_must() -> None:
    value = {"small": 1, "large": "x" * 900, "larger": "y" * 1_000, "largest": "z" * 1_100}

    left = json.loads(stowed(value, 1_500).text)

    assert left == {
        **value,
        "larger": reference_to(value["larger"]),
        "largest": reference_to(value["largest"]),
    }


def test_the_same_content_has_the_same_reference_and_is_kept_once() -> None:
    found = stowed({"a": ["x" * 500], "b": ["x" * 500]}, 300)

    left = json.loads(found.text)
    assert left["a"] == left["b"] == reference_to(["x" * 500])
    assert list(found.payloads) == [left["a"][PAYLOAD_KEY]]


def test_what_is_shorter_than_a_reference_is_never_taken_out() -> None:
    with pytest.raises(TooLarge) as raised:
        stowed({str(n): "x" * 50 for n in range(100)}, 1_000)

    assert str(raised.value) == (
        "the output of step 'a' has 5,791 bytes; limits.max_output_bytes allows 1,000, and without what can"
        " be passed by reference it still has 5,791: put what is large under one key"
    )


def test_a_reference_that_is_passed_on_stays_the_one_it_is() -> None:
    value = {"old": REFERENCE, "new": "x" * 1_000}

    left = json.loads(stowed(value, 500).text)

    assert left == {"old": REFERENCE, "new": reference_to("x" * 1_000)}


@pytest.mark.parametrize("value", [["x" * 1_000], "x" * 1_000])
def test_only_values_of_an_object_can_be_taken_out(value: Any) -> None:
    with pytest.raises(TooLarge, match="only the values of an object can be passed by reference"):
        stowed(value, 500)


def test_one_value_may_only_be_so_large() -> None:
    assert stowed({"rows": "x" * 998}, 500, most=1_000).payloads

    with pytest.raises(TooLarge) as raised:
        stowed({"rows": "x" * 999}, 500, most=1_000)

    assert str(raised.value) == (
        "'rows' of the output of step 'a' has 1,001 bytes; a value that is passed by reference may have 1,000"
        " (ORCHESTRATOR_PAYLOAD_MAX_BYTES)"
    )


def test_the_inputs_of_a_start_have_a_megabyte() -> None:
    text = written({"rows": "x" * (1024 * 1024 - 11)})

    assert not offload_inputs(text, MOST).payloads
    assert offload_inputs(written({"rows": "x" * (1024 * 1024 - 10)}), 2 * MOST).payloads
    with pytest.raises(TooLarge, match=r"the object of inputs has .* bytes; a start allows 1,048,576"):
        offload_inputs(written(["x" * 1024 * 1024]), MOST)


def test_all_payloads_are_put() -> None:
    found, shelf = stowed({"a": "x" * 500, "b": "y" * 500}, 300), Shelf()

    found.put_into(shelf)

    assert shelf.kept == found.payloads
    assert len(shelf.kept) == 2


class Shelf:
    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def put(self, payload_id: str, data: bytes) -> None:
        self.kept[payload_id] = data

    def get(self, payload_id: str) -> bytes | None:
        return self.kept.get(payload_id)


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
def test_other_data_is_no_reference(value: Any) -> None:
    assert not is_reference(value)
    assert not has_references([{"a": value}])


def test_a_reference_is_found_at_any_depth() -> None:
    assert is_reference(REFERENCE)
    assert has_references(REFERENCE)
    assert has_references({"a": [1, {"b": [[REFERENCE]]}]})


# ---- loading


def test_references_are_loaded_wherever_they_are_and_nothing_else_changes() -> None:
    rows = [1, {"ž": None}]
    value = {"a": reference_to(rows), "b": [{"c": reference_to("text")}, 7], "d": {"e": "x"}}

    found = loaded(value, {reference_to(one)[PAYLOAD_KEY]: pack(written(one)) for one in (rows, "text")})

    assert found == {"a": rows, "b": [{"c": "text"}, 7], "d": {"e": "x"}}


def test_without_references_the_very_same_value_is_given_and_nothing_fetched() -> None:
    value = {"a": [1, {"b": 2}]}

    def fetch(payload_id: str) -> bytes:
        raise AssertionError(payload_id)

    assert load(value, fetch, MOST, "inputs") is value


def test_a_payload_is_fetched_once_and_each_reference_to_it_is_a_value_of_its_own() -> None:
    reference, fetched = reference_to([1]), list[str]()

    def fetch(payload_id: str) -> bytes:
        fetched.append(payload_id)
        return pack("[1]")

    found = load([reference, reference], fetch, MOST, "inputs")
    found[0].append(2)

    assert found == [[1, 2], [1]]
    assert fetched == [reference[PAYLOAD_KEY]]


def test_what_a_payload_holds_is_data_even_if_it_looks_like_a_reference() -> None:
    outer = {"inner": REFERENCE}

    assert loaded(reference_to(outer), {reference_to(outer)[PAYLOAD_KEY]: pack(written(outer))}) == outer


def test_a_payload_that_is_gone_is_named_with_its_place() -> None:
    with pytest.raises(PayloadMissing) as raised:
        loaded({"b": [0, {"rows": REFERENCE}]}, {})

    assert str(raised.value) == (
        f"inputs.b[1].rows is kept by reference (5 bytes), and its payload {ID} is not in the store: its time"
        " may have passed (ORCHESTRATOR_PAYLOAD_TTL_S), or this process has another store"
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
def test_a_payload_that_is_damaged_is_as_good_as_gone(data: bytes) -> None:
    with pytest.raises(PayloadMissing, match=r"^inputs is kept by reference .* is damaged"):
        loaded(reference_to("text"), {reference_to("text")[PAYLOAD_KEY]: data})


def test_no_more_is_unpacked_than_one_value_may_have() -> None:
    bomb = "x" * 1_000_000
    kept = {reference_to(bomb)[PAYLOAD_KEY]: pack(written(bomb))}

    assert len(unpack(pack(bomb), 1_000)) == 1_001
    with pytest.raises(PayloadMissing, match="larger than ORCHESTRATOR_PAYLOAD_MAX_BYTES allows here"):
        loaded(reference_to(bomb), kept, most=1_000)


def test_all_values_of_one_step_may_only_have_so_much_in_all() -> None:
    value = "x" * 98
    kept = {reference_to(value)[PAYLOAD_KEY]: pack(written(value))}

    assert len(loaded([reference_to(value)] * MAX_LOADED_FACTOR, kept, most=100)) == MAX_LOADED_FACTOR
    with pytest.raises(TooLarge, match=r"the values under inputs .* have more than 400 bytes in all"):
        loaded([reference_to(value)] * (MAX_LOADED_FACTOR + 1), kept, most=100)


# ---- as a store keeps it


def test_a_text_is_compressed_if_that_pays() -> None:
    dense = sha256(b"1").hexdigest() + sha256(b"2").hexdigest()

    assert len(pack("x" * 1_000)) < 100
    assert pack(f'"{dense[:20]}"') == f'"{dense[:20]}"'.encode()
    for text in ("x" * 1_000, f'"{dense}"', '"ž"', "1", "[]"):
        assert unpack(pack(f'["{text}"]'), MOST) == f'["{text}"]'.encode()


# ---- inputs of a job, settings


def test_inputs_may_have_so_many_bytes_when_they_are_carried() -> None:
    check_inputs_size({"a": "ž" * 46}, "b", 100)  # 100 bytes

    with pytest.raises(ExpressionError) as raised:
        check_inputs_size({"a": "ž" * 46 + "x"}, "b", 100)

    assert str(raised.value) == (
        "the inputs of step 'b' have 101 bytes; at most 100 can be carried: pass large values whole, as a"
        " step has put them out by reference, and build new ones in a step"
    )
    check_inputs_size({"a": "x" * 17}, "b", 100)


def test_the_largest_value_is_a_setting() -> None:
    assert payload_limit({}) == MAX_PAYLOAD_BYTES == 64 * 1024 * 1024
    assert payload_limit({"ORCHESTRATOR_PAYLOAD_MAX_BYTES": " 7 "}) == 7


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "9" * 16, "²"])
def test_a_setting_that_is_no_whole_number_is_refused_by_name(text: str) -> None:
    with pytest.raises(StoreError, match="SOME_VARIABLE must be a whole number above zero, not"):
        read_positive_int({"SOME_VARIABLE": text}, "SOME_VARIABLE", 1)


def test_what_stow_is_told_is_what_it_says() -> None:
    with pytest.raises(TooLarge, match=r"^this has 1,000 bytes; that allows 10, and without"):
        offload(written({"x" * 994: 1}), 10, MOST, "this", "that")
