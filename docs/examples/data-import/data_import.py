"""The executors of data-import. Each of them may be called twice, the compensations too."""

from __future__ import annotations

import csv
import sqlite3
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict

import fake_search
from warehouse import database

LINES_OF_A_CHUNK = 1000
COLUMNS = ["email", "name"]


class BadFile(Exception):
    """The file is no list of customers. Another attempt would not help."""


class Load(TypedDict):
    batch: str
    file: str
    chunk: dict[str, int]


def plan_chunks(inputs: dict[str, Any]) -> dict[str, Any]:
    """Check the head of the file, and divide its lines into chunks."""
    with Path(inputs["file"]).open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        if next(reader, None) != COLUMNS:
            raise BadFile(f"the first line must be {','.join(COLUMNS)}")
        lines = sum(1 for _ in reader)
    starts = range(0, lines, LINES_OF_A_CHUNK)
    return {"lines": lines, "chunks": [{"start": start, "count": LINES_OF_A_CHUNK} for start in starts]}


def open_batch(inputs: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
    return {"batch": context["idempotency_key"]}


def load_chunk(inputs: Load) -> dict[str, Any]:
    """Load some lines. The key of a row is its batch and line, so a second call replaces the same rows."""
    start, count = inputs["chunk"]["start"], inputs["chunk"]["count"]
    with Path(inputs["file"]).open(newline="", encoding="utf-8") as file:
        lines = list(islice(csv.reader(file), start + 1, start + 1 + count))
    rows = [
        (inputs["batch"], start + n, *(value.strip() for value in [*line, "", ""][:2]))
        for n, line in enumerate(lines, start=1)
    ]
    with database() as warehouse:
        warehouse.executemany("INSERT OR REPLACE INTO staging VALUES (?, ?, ?, ?)", rows)
    return {"rows": len(rows)}


def check_batch(inputs: dict[str, Any]) -> dict[str, Any]:
    """Count the lines without a valid address, and check that every line was loaded."""
    with database() as warehouse:
        lines, bad, first = warehouse.execute(
            "SELECT count(*), count(*) FILTER (WHERE is_bad), min(line) FILTER (WHERE is_bad)"
            " FROM (SELECT line, email NOT LIKE '_%@_%._%' AS is_bad FROM staging WHERE batch = ?)",
            [inputs["batch"]],
        ).fetchone()
    if lines != inputs["lines"]:
        raise BadFile(f"{lines} lines were loaded, and the file had {inputs['lines']}: it has changed")
    return {"lines": lines, "bad": bad, "first_bad": first}


def publish_batch(inputs: dict[str, Any]) -> dict[str, Any]:
    """Replace the customers of the batch in one transaction, and keep what was there for restore_rows()."""
    batch = inputs["batch"]
    with database() as warehouse:
        warehouse.execute("BEGIN IMMEDIATE")
        if not warehouse.execute("SELECT 1 FROM published WHERE batch = ?", [batch]).fetchone():
            warehouse.execute(
                "INSERT INTO replaced SELECT ?, new.email, old.name"
                " FROM (SELECT DISTINCT email FROM staging WHERE batch = ? AND email LIKE '_%@_%._%') new"
                " LEFT JOIN customers old USING (email)",
                [batch, batch],
            )
            warehouse.execute(
                "INSERT OR REPLACE INTO customers SELECT email, name FROM staging"
                " WHERE batch = ? AND email LIKE '_%@_%._%' ORDER BY line",
                [batch],
            )
            warehouse.execute("INSERT INTO published VALUES (?)", [batch])
        (rows,) = warehouse.execute("SELECT count(*) FROM replaced WHERE batch = ?", [batch]).fetchone()
    return {"batch": batch, "rows": rows}


def restore_rows(inputs: dict[str, Any]) -> dict[str, Any]:
    """Put back what publish_batch() has replaced."""
    batch = [inputs["batch"]]
    with database() as warehouse:
        changed = "SELECT email FROM replaced WHERE batch = ? AND name IS NULL"
        warehouse.execute(f"DELETE FROM customers WHERE email IN ({changed})", batch)
        warehouse.execute(
            "INSERT OR REPLACE INTO customers"
            " SELECT email, name FROM replaced WHERE batch = ? AND name IS NOT NULL",
            batch,
        )
        _forget(warehouse, inputs["batch"])
    return {}


def discard_batch(inputs: dict[str, Any]) -> dict[str, Any]:
    """Remove everything of a batch except the customers."""
    with database() as warehouse:
        warehouse.execute("DELETE FROM staging WHERE batch = ?", [inputs["batch"]])
        _forget(warehouse, inputs["batch"])
    return {}


def _forget(warehouse: sqlite3.Connection, batch: str) -> None:
    warehouse.execute("DELETE FROM replaced WHERE batch = ?", [batch])
    warehouse.execute("DELETE FROM published WHERE batch = ?", [batch])


def announce_customers(inputs: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
    """Have the search engine index the new customers."""
    fake_search.rebuild(context["idempotency_key"])
    return {}
