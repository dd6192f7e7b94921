"""The executors of order and shipping. Every effect has a key, so a repeated call changes nothing."""

from __future__ import annotations

from typing import Any, TypedDict

import fake_shop

Context = dict[str, Any]


class Goods(TypedDict):
    sku: str
    quantity: int


class Charge(TypedDict):
    amount: float
    card: str
    api_key: str


def reserve_stock(inputs: Goods, context: Context) -> dict[str, Any]:
    """Reserve goods. Raises OutOfStock, which is not retried."""
    key = context["idempotency_key"]
    fake_shop.reserve(key, inputs["sku"], inputs["quantity"])
    return {"reservation": key}


def release_stock(inputs: dict[str, Any]) -> dict[str, Any]:
    fake_shop.release(inputs["reservation"])
    return {}


def charge_card(inputs: Charge, context: Context) -> dict[str, Any]:
    """Charge a card. Raises CardDeclined, which is not retried."""
    key = context["idempotency_key"]  # a real bank takes it as the header Idempotency-Key
    return {"payment": fake_shop.charge(key, inputs["amount"], inputs["card"], inputs["api_key"])}


def refund_payment(inputs: dict[str, Any]) -> dict[str, Any]:
    fake_shop.refund(inputs["payment"])
    return {}


def print_label(inputs: Goods, context: Context) -> dict[str, Any]:
    text = f"{inputs['quantity']} x {inputs['sku']}"
    return {"tracking": fake_shop.print_label(context["idempotency_key"], text)}


def void_label(inputs: dict[str, Any]) -> dict[str, Any]:
    fake_shop.void_label(inputs["tracking"])
    return {}


def mail_receipt(inputs: dict[str, Any], context: Context) -> dict[str, Any]:
    text = f"Payment {inputs['payment']}, parcel {inputs['tracking']}"
    fake_shop.send_mail(context["idempotency_key"], text)
    return {}
