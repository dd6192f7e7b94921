"""The books of three shops, and a mail server: in the SQLite file that OFFICE_DB names, or in office.db."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

TABLES = """
CREATE TABLE IF NOT EXISTS sales (day TEXT, shop TEXT, cents INTEGER);
CREATE TABLE IF NOT EXISTS closed (day TEXT, shop TEXT, PRIMARY KEY (day, shop));
CREATE TABLE IF NOT EXISTS mails (key TEXT PRIMARY KEY, text TEXT NOT NULL);
"""
SHOPS = ("berlin", "paris", "rome")


class BooksOpen(Exception):
    """A shop has not closed its books yet. Another attempt helps."""


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(os.environ.get("OFFICE_DB", "office.db"))) as connection, connection:
        connection.executescript(TABLES)
        yield connection


def sell(day: str, shop: str, cents: int) -> None:
    with database() as office:
        office.execute("INSERT INTO sales VALUES (?, ?, ?)", [day, shop, cents])


def close_books(day: str, *shops: str) -> None:
    with database() as office:
        rows = [(day, shop) for shop in shops or SHOPS]
        office.executemany("INSERT INTO closed VALUES (?, ?) ON CONFLICT DO NOTHING", rows)


def sales_of(day: str) -> list[tuple[str, int]]:
    with database() as office:
        closed = {shop for (shop,) in office.execute("SELECT shop FROM closed WHERE day = ?", [day])}
        if missing := [shop for shop in SHOPS if shop not in closed]:
            raise BooksOpen(f"{day} is still open in {', '.join(missing)}")
        select = "SELECT shop, sum(cents) FROM sales WHERE day = ? GROUP BY shop ORDER BY shop"
        return office.execute(select, [day]).fetchall()


def send_mail(key: str, text: str) -> None:
    """Send a mail once for each key."""
    with database() as office:
        office.execute("INSERT INTO mails VALUES (?, ?) ON CONFLICT DO NOTHING", [key, text])


def mails() -> list[str]:
    with database() as office:
        return [text for (text,) in office.execute("SELECT text FROM mails ORDER BY key")]


if __name__ == "__main__":
    sell("2026-03-01", "berlin", 1250)
    sell("2026-03-01", "rome", 800)
    close_books("2026-03-01")
