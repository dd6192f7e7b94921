"""What the examples need: a shop that prices, reserves and ships an order; an office for invoices."""

from __future__ import annotations

import time
from typing import Any

__all__ = ["check_order", "execute", "quote_shipping", "reserve", "total"]

PRICES = {"a1": 12.5, "b2": 99.0}


def check_order(inputs: dict[str, Any]) -> dict[str, Any]:
    """Whether we sell this, and for how much."""
    sku, quantity = inputs["sku"], inputs["quantity"]
    if sku not in PRICES:
        return {"accepted": False, "problem": f"we do not sell {sku!r}"}
    if quantity < 1:
        return {"accepted": False, "problem": "nothing was ordered"}
    return {"accepted": True, "price": PRICES[sku]}


def reserve(inputs: dict[str, Any]) -> dict[str, Any]:
    """Reserve the goods. The first attempt fails, as a warehouse that is busy for a moment would."""
    time.sleep(0.2)
    if inputs["attempt"] == 1:
        raise ConnectionError("the warehouse did not answer")
    return {"reserved": inputs["quantity"], "shelf": f"shelf-{inputs['sku']}"}


def quote_shipping(inputs: dict[str, Any]) -> dict[str, Any]:
    """What shipping costs."""
    time.sleep(0.3)
    return {"shipping": round(3.9 + 0.5 * inputs["quantity"], 2)}


def total(inputs: dict[str, Any]) -> dict[str, Any]:
    """What the customer pays."""
    return {"total": round(inputs["price"] * inputs["quantity"] + inputs["shipping"], 2)}


# ---- an invoice, from its scan to the books

SCANS = {
    "small.txt": {"confidence": 0.97, "text": "  a1 x 2 ;; a1 x 1  "},
    "large.txt": {"confidence": 0.8, "text": " b2 x 6 ;; zz x 1 "},
    "coffee.txt": {"confidence": 0.1, "text": "?"},
}


def fetch_document(inputs: dict[str, Any]) -> dict[str, Any]:
    """Find a scan in the archive."""
    name = inputs["name"]
    if name not in SCANS:
        raise FileNotFoundError(f"there is no document {name!r}; there is: {', '.join(SCANS)}")
    return {"file": name, "bytes": len(str(SCANS[name]["text"])), "type": "text/plain"}


def ocr(inputs: dict[str, Any]) -> dict[str, Any]:
    """Read a scan. The first attempt fails: the scanner is busy."""
    if inputs["attempt"] == 1:
        raise TimeoutError("the scanner is busy")
    return dict(SCANS[inputs["file"]])


def clean(inputs: dict[str, Any]) -> dict[str, Any]:
    """Take one kind of noise out of a text, and say how good it is now."""
    text, round_ = inputs["text"], inputs["round"] + 1
    text = text.strip() if round_ == 1 else text.replace(" ;; ", "; ")
    return {"text": text, "round": round_, "quality": 0.5 if ";;" in text else 0.95}


def extract(inputs: dict[str, Any]) -> dict[str, Any]:
    """The fields of an invoice, from its text: "a1 x 2; b2 x 1"."""
    pairs = [line.split(" x ") for line in inputs["text"].split("; ")]
    lines = [{"sku": sku, "quantity": int(quantity)} for sku, quantity in pairs]
    amount = sum(PRICES.get(sku, 0) * int(quantity) for sku, quantity in pairs)
    return {"fields": {"lines": lines, "amount": amount}}


def manual_entry(inputs: dict[str, Any]) -> dict[str, Any]:
    """The same by hand, for scans that are hard to read."""
    return extract(inputs)


def merge_fields(inputs: dict[str, Any]) -> dict[str, Any]:
    """What is known of the invoice, whoever read it."""
    return {"fields": inputs["fields"]}


def price_line(inputs: dict[str, Any]) -> dict[str, Any]:
    """What one line costs."""
    line = inputs["line"]
    if line["sku"] not in PRICES:
        raise LookupError(f"line {inputs['n']}: {line['sku']!r} has no price")
    return {"price": PRICES[line["sku"]] * line["quantity"]}


def store(inputs: dict[str, Any]) -> dict[str, Any]:
    """Write the invoice into the books."""
    return {"number": f"inv-{inputs['fields']['amount']:g}", "by": inputs["by"]}


def notify(inputs: dict[str, Any]) -> dict[str, Any]:
    """Tell somebody; there is nobody to tell."""
    raise ConnectionError(f"nobody heard of {inputs['number']}")


INVOICE = {
    "fetch_document": fetch_document,
    "ocr": ocr,
    "clean": clean,
    "extract": extract,
    "manual_entry": manual_entry,
    "merge_fields": merge_fields,
    "price_line": price_line,
    "store": store,
    "notify": notify,
}


def execute(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """What is asked for names that nobody else knows: the work of the invoice is found here."""
    if fn not in INVOICE:
        raise LookupError(f"no executor is called {fn!r}; for an invoice there is: {', '.join(INVOICE)}")
    return INVOICE[fn](inputs)
