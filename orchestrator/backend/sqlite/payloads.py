"""SqlitePayloads: payloads in rows, for as long as the file exists, like all records in it."""

from __future__ import annotations

from orchestrator.backend.sqlite.database import Database


class SqlitePayloads:
    def __init__(self, database: Database) -> None:
        self._db = database

    def put(self, payload_id: str, data: bytes) -> None:
        with self._db.write_transaction() as db:
            db.execute("INSERT OR REPLACE INTO payloads (id, data) VALUES (?, ?)", [payload_id, data])

    def get(self, payload_id: str) -> bytes | None:
        with self._db.read_transaction() as db:
            row = db.execute("SELECT data FROM payloads WHERE id = ?", [payload_id]).fetchone()
        return None if row is None else bytes(row["data"])
