"""Orders and refunds in the SQLite file that SUPPORT_DB names, or in support.db."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Any

TABLE = "CREATE TABLE IF NOT EXISTS refunds (key TEXT PRIMARY KEY, number INTEGER, amount REAL)"
ORDERS = {17: {"number": 17, "amount": 49.0, "status": "delivered"}}


def find_order(number: int) -> dict[str, Any]:
    if number not in ORDERS:
        raise ValueError(f"there is no order {number}")
    return ORDERS[number]


def refund_order(key: str, number: int, amount: float) -> dict[str, Any]:
    """Refund an order once for each key."""
    with closing(sqlite3.connect(os.environ.get("SUPPORT_DB", "support.db"))) as database, database:
        database.execute(TABLE)
        database.execute("INSERT INTO refunds VALUES (?, ?, ?) ON CONFLICT DO NOTHING", [key, number, amount])
    return {"refund": key, "amount": amount}


def refunds() -> list[tuple[int, float]]:
    with closing(sqlite3.connect(os.environ.get("SUPPORT_DB", "support.db"))) as database, database:
        database.execute(TABLE)
        return database.execute("SELECT number, amount FROM refunds").fetchall()
