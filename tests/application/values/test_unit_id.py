"""Unit ids: what each kind answers, and that dictionaries and JSON keep plain strings."""

from __future__ import annotations

import pytest

from orchestrator.application.values.unit_id import WEBHOOK_UNIT, UnitId, split_unit, step_of


@pytest.mark.parametrize(
    ("unit", "step_id", "part", "kind", "index"),
    [
        ("fetch", "fetch", "", "is_step", None),
        ("a.b-c", "a.b-c", "", "is_step", None),
        ("fetch#0", "fetch", "0", "is_item", 0),
        ("fetch#12", "fetch", "12", "is_item", 12),
        ("fetch#undo", "fetch", "undo", "is_compensation", None),
        ("#webhook", "", "webhook", "is_webhook", None),
    ],
)
def test_a_unit_is_of_one_kind(unit: str, step_id: str, part: str, kind: str, index: int | None) -> None:
    unit_id = UnitId(unit)

    kinds = {
        name for name in ("is_step", "is_item", "is_compensation", "is_webhook") if getattr(unit_id, name)
    }
    assert kinds == {kind}
    assert (unit_id.step_id, unit_id.part, unit_id.item_index) == (step_id, part, index)
    assert (step_of(unit), split_unit(unit)) == (step_id, (step_id, part))


def test_a_unit_id_equals_the_string_that_it_reads() -> None:
    assert {"fetch#0": 1}[UnitId("fetch#0")] == 1
    assert UnitId("fetch") == "fetch"


def test_the_ids_that_are_stored_are_plain_strings() -> None:
    made = [UnitId.for_item("fetch", 3), UnitId.for_compensation("fetch"), WEBHOOK_UNIT]

    assert made == ["fetch#3", "fetch#undo", "#webhook"]
    assert {type(unit) for unit in made} == {str}
