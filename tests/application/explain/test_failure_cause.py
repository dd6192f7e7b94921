"""The cause of a failure: the same for failures that differ only in ids, times and numbers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from orchestrator.application.explain.failure_cause import (
    ID_LENGTH,
    MAX_MESSAGE_CHARS,
    FailureCause,
    find_cause,
    normalize_message,
)

ERROR: dict[str, Any] = {"kind": "exception", "type": "ValueError", "message": "price 7 is wrong"}


@pytest.mark.parametrize(
    ("message", "normalized"),
    [
        ("no such address\nanywhere", "no such address"),
        ("order 17 has 2 of 3 parts", "order <n> has <n> of <n> parts"),
        ("12,50 is no price, and neither is 1.250,00", "<n> is no price, and neither is <n>"),
        ("parcel-42 is lost", "parcel-<n> is lost"),
        ("10.0.0.7:5432 refused", "<n>:<n> refused"),
        ("no row 9b2f1c44-7d1e-4c0a-8f6e-0a1b2c3d4e5f", "no row <id>"),
        ("commit 0a1b2c3d4e5f is gone", "commit <id> is gone"),
        ("object at 0x7f3a2c00", "object at <id>"),
        ("facade and deadbeef are words", "facade and deadbeef are words"),
        ("since 2026-11-18T08:00:01.250Z", "since <time>"),
        ("since 2026-11-18 08:00:01+01:00, or 2026-11-18", "since <time>, or <time>"),
        ("  ", ""),
        ("über-17", "über-<n>"),
    ],
)
def test_ids_times_and_numbers_are_taken_out_of_a_message(message: str, normalized: str) -> None:
    assert normalize_message(message) == normalized


def test_the_id_of_the_execution_is_taken_out_too() -> None:
    assert normalize_message("order-acme is not paid", "order-acme") == "<execution> is not paid"


def test_a_long_message_is_cut_before_it_is_read() -> None:
    assert normalize_message("0a" * 5_000 + "\ud800" * 5_000) == "<id>"
    assert normalize_message("x" * 5_000) == "x" * MAX_MESSAGE_CHARS
    assert len(normalize_message("2026-11-18T" * 1_000)) == MAX_MESSAGE_CHARS


def test_failures_that_differ_in_a_number_have_the_same_cause() -> None:
    one, other = (
        find_cause("order", step, {**ERROR, "message": f"price {n} is wrong"}, "x")
        for step, n in (("pay#3", 7), ("pay#11", 81))
    )

    assert one == other
    assert one.id == other.id
    assert re.fullmatch(f"[0-9a-f]{{{ID_LENGTH}}}", one.id)
    assert (one.step, one.text) == ("pay", "ValueError: price <n> is wrong")


@pytest.mark.parametrize(
    ("workflow", "step", "change"),
    [
        ("bill", "pay", {}),
        ("order", "ship", {}),
        ("order", "pay", {"kind": "timeout"}),
        ("order", "pay", {"type": "TypeError"}),
        ("order", "pay", {"message": "another"}),
        (None, "pay", {}),
        ("order", None, {}),
    ],
)
def test_failures_that_differ_in_anything_else_have_other_causes(
    workflow: str | None, step: str | None, change: dict[str, Any]
) -> None:
    cause = find_cause("order", "pay", ERROR, "x")

    assert find_cause(workflow, step, {**ERROR, **change}, "x").id != cause.id


def test_an_error_with_little_in_it_has_a_cause_too() -> None:
    cause = find_cause(None, None, {"message": "\ud800"}, "x")

    assert cause == FailureCause(None, "", "unknown", None, "\ud800")
    assert (len(cause.id), cause.text) == (ID_LENGTH, "unknown: \ud800")
    assert find_cause(None, None, {"kind": "lost"}, "x").text == "lost"
