"""The executors of docs/examples/invoice.yaml: an office that processes an invoice from its scan to the
books."""

from __future__ import annotations

from typing import Any

PRICES = {"a1": 12.5, "b2": 99.0}
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
    return {"file": name, "bytes": len(str(SCANS[name]["text"])), "type": "text/plain", "clerk": "grace"}


def ocr(inputs: dict[str, Any]) -> dict[str, Any]:
    """Read a scan. The first attempt fails: the scanner is busy."""
    if inputs["attempt"] == 1:
        raise TimeoutError("the scanner is busy")
    return dict(SCANS[inputs["file"]])


def clean(inputs: dict[str, Any]) -> dict[str, Any]:
    """Remove one kind of noise from a text, and return its new quality."""
    text, round_ = inputs["text"], inputs["round"] + 1
    text = text.strip() if round_ == 1 else text.replace(" ;; ", "; ")
    return {"text": text, "round": round_, "quality": 0.5 if ";;" in text else 0.95}


def extract(inputs: dict[str, Any]) -> dict[str, Any]:
    """Read the fields of an invoice from its text: "a1 x 2; b2 x 1"."""
    pairs = [line.split(" x ") for line in inputs["text"].split("; ")]
    lines = [{"sku": sku, "quantity": int(quantity)} for sku, quantity in pairs]
    amount = sum(PRICES.get(sku, 0) * int(quantity) for sku, quantity in pairs)
    return {"fields": {"lines": lines, "amount": amount}}


def manual_entry(inputs: dict[str, Any]) -> dict[str, Any]:
    """Enter the fields by hand, for scans that are hard to read."""
    return extract(inputs)


def merge_fields(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the invoice, whichever step has read them."""
    return {"fields": inputs["fields"]}


def price_line(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the price of one line."""
    line = inputs["line"]
    if line["sku"] not in PRICES:
        raise LookupError(f"line {inputs['n']}: {line['sku']!r} has no price")
    return {"price": PRICES[line["sku"]] * line["quantity"]}


def store(inputs: dict[str, Any]) -> dict[str, Any]:
    """Write the invoice into the books."""
    return {"number": f"inv-{inputs['fields']['amount']:g}", "by": inputs["by"]}


def strike_out(inputs: dict[str, Any]) -> dict[str, Any]:
    """Undo `store`."""
    return {"struck_out": inputs["number"]}


def stamp(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the stamp for a document before it goes to the archive."""
    return {"text": f"{inputs['number']}, received by {inputs['clerk']}"}


def file_away(inputs: dict[str, Any]) -> dict[str, Any]:
    """Put a document on its shelf. The first attempt fails: the ladder is gone."""
    if inputs["attempt"] == 1:
        raise FileNotFoundError("the ladder is gone")
    return {"shelf": f"shelf-{len(inputs['text']) % 7}"}


def notify(inputs: dict[str, Any]) -> dict[str, Any]:
    """Send a notification. It always fails: there is no receiver."""
    raise ConnectionError(f"no receiver for {inputs['number']}")
