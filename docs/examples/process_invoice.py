"""What docs/examples/process-invoice.yaml needs besides the executors that every worker has.

    ORCHESTRATOR_FILE_ROOT   the folder of the scans, as for the executor `file`
    INVOICES_DB              the database, a file of SQLite; it is made when it is not there

Both are variables of the worker.
"""

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

TABLE = """
CREATE TABLE IF NOT EXISTS invoices (
    key TEXT PRIMARY KEY,  -- of the step that wrote the row
    vendor TEXT NOT NULL,
    amount TEXT NOT NULL  -- as it is written: money is no float
)
"""


def ocr(inputs):
    """The text of a scan, and how sure we are of it.

    A scan is a text here, in which `?` stands for what cannot be read. A real one goes to a program.
    """
    text = Path(os.environ["ORCHESTRATOR_FILE_ROOT"], inputs["path"]).read_text(encoding="utf-8")
    if not text:
        return {"text": "", "confidence": 0.0}
    return {"text": text, "confidence": round(1 - text.count("?") / len(text), 3)}


def extract_fields(inputs):
    """Who wants how much."""
    vendor = re.search(r"^Vendor: (.+)$", inputs["text"], re.MULTILINE)
    amount = re.search(r"^Amount: (\d+\.\d\d)$", inputs["text"], re.MULTILINE)
    if vendor is None or amount is None:
        raise ValueError("an invoice has a line 'Vendor: ...' and a line 'Amount: 0.00'")
    return {"vendor": vendor[1], "amount": amount[1]}


def insert_invoice(inputs, context):
    """Write an invoice into the database, once, however often this is called for it."""
    key = context["idempotency_key"]
    with closing(sqlite3.connect(os.environ["INVOICES_DB"])) as database, database:
        database.execute(TABLE)
        database.execute(
            "INSERT INTO invoices VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            [key, inputs["vendor"], inputs["amount"]],
        )
        (row_id,) = database.execute("SELECT rowid FROM invoices WHERE key = ?", [key]).fetchone()
    return {"row_id": row_id}
