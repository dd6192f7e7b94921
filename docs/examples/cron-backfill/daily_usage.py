"""The executors of daily-usage: the usage of a day is computed from events, and stored as a whole."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from typing import Any

TABLES = """
CREATE TABLE IF NOT EXISTS events (day TEXT, customer TEXT, seconds INTEGER);
CREATE TABLE IF NOT EXISTS usage (day TEXT, customer TEXT, seconds INTEGER, PRIMARY KEY (day, customer));
"""


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(os.environ.get("USAGE_DB", "usage.db"))) as connection, connection:
        connection.executescript(TABLES)
        yield connection


def usage_day(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the day before the slot."""
    slot = datetime.strptime(inputs["execution_id"].rpartition(":")[2], "%Y%m%dT%H%M%SZ")
    return {"day": (slot.date() - timedelta(days=1)).isoformat()}


def count_usage(inputs: dict[str, Any]) -> dict[str, Any]:
    with database() as usage:
        select = "SELECT customer, sum(seconds) FROM events WHERE day = ? GROUP BY customer ORDER BY customer"
        rows = usage.execute(select, [inputs["day"]]).fetchall()
    return {"usage": [{"customer": customer, "seconds": seconds} for customer, seconds in rows]}


def store_usage(inputs: dict[str, Any]) -> dict[str, Any]:
    """Replace the rows of the day in one transaction: a second call writes the same rows."""
    rows = [(inputs["day"], one["customer"], one["seconds"]) for one in inputs["usage"]]
    with database() as usage:
        usage.execute("DELETE FROM usage WHERE day = ?", [inputs["day"]])
        usage.executemany("INSERT INTO usage VALUES (?, ?, ?)", rows)
    return {}


def stored() -> list[tuple[str, str, int]]:
    with database() as usage:
        return usage.execute("SELECT * FROM usage ORDER BY day, customer").fetchall()


def write_events(*days: str) -> None:
    with database() as usage:
        usage.executemany("INSERT INTO events VALUES (?, 'acme', 60)", [(day,) for day in days])


if __name__ == "__main__":
    write_events("2026-02-27", "2026-02-28", "2026-03-01")
