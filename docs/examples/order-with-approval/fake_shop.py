"""A warehouse, a bank, a carrier and a mail server in one SQLite file: SHOP_DB, or shop.db."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

TABLES = """
CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, quantity INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS reservations (key TEXT PRIMARY KEY, sku TEXT NOT NULL, quantity INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS payments (key TEXT PRIMARY KEY, amount REAL, is_refunded INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS labels (key TEXT PRIMARY KEY, text TEXT NOT NULL, is_void INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS mails (key TEXT PRIMARY KEY, text TEXT NOT NULL);
INSERT INTO stock VALUES ('desk', 10), ('pen', 1000) ON CONFLICT DO NOTHING;
"""
DECLINED_CARD = "card-without-money"


class OutOfStock(Exception):
    non_retryable = True


class CardDeclined(Exception):
    """The bank declines the card. Another attempt would not help."""


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(os.environ.get("SHOP_DB", "shop.db"))) as connection, connection:
        connection.executescript(TABLES)
        yield connection


def reserve(key: str, sku: str, quantity: int) -> None:
    with database() as shop:
        shop.execute("BEGIN IMMEDIATE")
        if shop.execute("SELECT 1 FROM reservations WHERE key = ?", [key]).fetchone():
            return
        (stock,) = shop.execute(
            "SELECT coalesce(sum(quantity), 0) FROM stock WHERE sku = ?", [sku]
        ).fetchone()
        reserved = "SELECT coalesce(sum(quantity), 0) FROM reservations WHERE sku = ?"
        if stock - shop.execute(reserved, [sku]).fetchone()[0] < quantity:
            raise OutOfStock(f"fewer than {quantity} of {sku}")
        shop.execute("INSERT INTO reservations VALUES (?, ?, ?)", [key, sku, quantity])


def release(key: str) -> None:
    with database() as shop:
        shop.execute("DELETE FROM reservations WHERE key = ?", [key])


def charge(key: str, amount: float, card: str, api_key: str) -> str:
    if not api_key:
        raise PermissionError("the bank knows no account without an API key")
    if card == DECLINED_CARD:
        raise CardDeclined(f"the bank declines {amount:g}")
    with database() as shop:
        shop.execute("INSERT INTO payments (key, amount) VALUES (?, ?) ON CONFLICT DO NOTHING", [key, amount])
    return key


def refund(payment: str) -> None:
    with database() as shop:
        shop.execute("UPDATE payments SET is_refunded = 1 WHERE key = ?", [payment])


def print_label(key: str, text: str) -> str:
    with database() as shop:
        shop.execute("INSERT INTO labels (key, text) VALUES (?, ?) ON CONFLICT DO NOTHING", [key, text])
    return key


def void_label(key: str) -> None:
    with database() as shop:
        shop.execute("UPDATE labels SET is_void = 1 WHERE key = ?", [key])


def send_mail(key: str, text: str) -> None:
    with database() as shop:
        shop.execute("INSERT INTO mails VALUES (?, ?) ON CONFLICT DO NOTHING", [key, text])


def rows(table: str) -> list[tuple[object, ...]]:
    with database() as shop:
        return shop.execute(f"SELECT * FROM {table}").fetchall()
