"""The executors of the examples: a shop that prices, reserves and ships an order."""

from __future__ import annotations

import time
from typing import Any

PRICES = {"a1": 12.5, "b2": 99.0}


def check_order(inputs: dict[str, Any]) -> dict[str, Any]:
    """Check whether the shop sells this article, and return its price."""
    sku, quantity = inputs["sku"], inputs["quantity"]
    if sku not in PRICES:
        return {"accepted": False, "problem": f"we do not sell {sku!r}"}
    if quantity < 1:
        return {"accepted": False, "problem": "nothing was ordered"}
    return {"accepted": True, "price": PRICES[sku]}


def reserve(inputs: dict[str, Any]) -> dict[str, Any]:
    """Reserve the goods. The first attempt fails, like a warehouse that is busy for a moment."""
    time.sleep(0.2)
    if inputs["attempt"] == 1:
        raise ConnectionError("the warehouse did not answer")
    return {"reserved": inputs["quantity"], "shelf": f"shelf-{inputs['sku']}"}


def quote_shipping(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the price of shipping."""
    time.sleep(0.3)
    return {"shipping": round(3.9 + 0.5 * inputs["quantity"], 2)}


def total(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the price that the customer pays."""
    return {"total": round(inputs["price"] * inputs["quantity"] + inputs["shipping"], 2)}
