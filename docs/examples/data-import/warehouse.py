"""The tables of the import: in the SQLite file that WAREHOUSE_DB names, or in warehouse.db."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

TABLES = """
CREATE TABLE IF NOT EXISTS customers (email TEXT PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS staging (
    batch TEXT, line INTEGER, email TEXT, name TEXT, PRIMARY KEY (batch, line)
);
CREATE TABLE IF NOT EXISTS replaced (batch TEXT, email TEXT, name TEXT, PRIMARY KEY (batch, email));
CREATE TABLE IF NOT EXISTS published (batch TEXT PRIMARY KEY);
"""


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(os.environ.get("WAREHOUSE_DB", "warehouse.db"))) as connection, connection:
        connection.executescript(TABLES)
        yield connection


def rows(table: str) -> list[tuple[object, ...]]:
    with database() as warehouse:
        return warehouse.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
