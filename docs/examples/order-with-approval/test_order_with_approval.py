"""Tests of the order workflow: `pytest` in this folder. No Redis is needed, and no test waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_shop
import pytest

from orchestrator.testing import WorkflowTest

HERE = Path(__file__).parent
SMALL = {"sku": "pen", "quantity": 2, "amount": 20, "card": "card-1"}
LARGE = {"sku": "desk", "quantity": 1, "amount": 900, "card": "card-1"}
Start = Callable[[dict[str, Any]], WorkflowTest]


@pytest.fixture
def start(
    workflow_test: type[WorkflowTest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[dict[str, Any]], WorkflowTest]:
    monkeypatch.setenv("SHOP_DB", str(tmp_path / "shop.db"))

    def start(inputs: dict[str, Any]) -> WorkflowTest:
        return workflow_test(
            HERE / "workflow.yaml",
            inputs,
            executors="order_with_approval",
            workflows={"shipping": HERE / "shipping.yaml"},
        )

    return start


def hand_over(test: WorkflowTest) -> None:
    test.child("ship").signal("handed_over")
    test.run()


def test_a_small_order_needs_no_approval(start: Start) -> None:
    test = start(SMALL).run()

    hand_over(test)

    assert test.status == "complete"
    assert test.step("approval").status == "filtered"
    assert test.outcome["approved_by"] == "not needed"
    assert fake_shop.rows("payments") == [("rehearsal#charge#0", 20.0, 0)]
    assert len(fake_shop.rows("mails")) == 1


def test_a_large_order_is_not_charged_before_it_is_approved(start: Start) -> None:
    test = start(LARGE).run().skip("23h")
    assert fake_shop.rows("payments") == []

    test.signal("approve", {"by": "ada"}).run()
    hand_over(test)

    assert test.outcome["approved_by"] == "ada"
    assert len(fake_shop.rows("payments")) == 1


def test_a_declined_order_releases_its_stock(start: Start) -> None:
    test = start(LARGE).run()

    test.signal("decline", {"by": "ada"}).run()

    assert test.status == "failed"
    assert test.error["message"] == "not approved: decline (ada)"
    assert fake_shop.rows("reservations") == fake_shop.rows("payments") == []


def test_an_order_without_a_reply_ends_after_a_day(start: Start) -> None:
    test = start(LARGE).run().skip("24h")

    assert test.error["message"] == "not approved: timeout (no reply)"
    assert fake_shop.rows("reservations") == []


def test_goods_that_are_not_there_are_not_charged(start: Start) -> None:
    test = start(SMALL | {"quantity": 5000}).run()

    assert test.error["type"] == "OutOfStock"
    assert test.executed("reserve") == 1
    assert test.executed("charge") == 0


def test_a_declined_card_is_not_tried_again(start: Start) -> None:
    test = start(SMALL | {"card": fake_shop.DECLINED_CARD}).run()

    assert test.error["type"] == "CardDeclined"
    assert test.executed("charge") == 1
    assert fake_shop.rows("reservations") == []


def test_an_outage_of_the_bank_delays_the_payment(start: Start) -> None:
    test = start(SMALL)
    test.mock("charge_card", [ConnectionError("no route"), ConnectionError("no route"), {"payment": "p-1"}])

    test.run(skip_waits=True)

    assert test.step("charge").output == {"payment": "p-1"}
    assert test.step("charge").attempt == 3


def test_the_card_is_charged_once_when_the_worker_dies(start: Start) -> None:
    test = start(SMALL)
    test.kill("worker.result", step="charge")

    test.run()

    assert test.executed("charge") == 2
    assert len(fake_shop.rows("payments")) == 1


def test_a_parcel_that_stays_is_refunded_before_its_stock_is_released(start: Start) -> None:
    test = start(SMALL).run()

    test.skip("5d")

    assert test.status == "failed"
    assert [
        (one["step"]) for one in test.history if one.get("to") == "complete" and "#undo" in one["step"]
    ] == [
        "charge#undo",
        "reserve#undo",
    ]
    assert fake_shop.rows("payments") == [("rehearsal#charge#0", 20.0, 1)]
    assert fake_shop.rows("reservations") == []
    assert [is_void for *_, is_void in fake_shop.rows("labels")] == [1]


def test_a_mail_that_cannot_be_sent_does_not_fail_the_order(start: Start) -> None:
    test = start(SMALL)
    test.mock("mail_receipt", ConnectionError("no route"))

    hand_over(test.run())
    test.run(skip_waits=True)

    assert test.status == "complete"
    assert test.step("receipt").status == "skipped"


def test_the_record_names_the_key_of_the_bank_and_does_not_hold_it(start: Start) -> None:
    test = start(SMALL).run()

    assert test.calls("charge")[0]["api_key"] == {"secret": "bank.api_key"}
