"""The stage on a SQLite file: the stage in memory, with the store and the runner of SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from language.execution import Said
from language.memory_stage import Counting, MemoryStage
from language.stage import Place
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent
from orchestrator.backend import SqliteRunner, SqliteStore


class SqliteStage(MemoryStage):
    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__()

    def close(self) -> None:
        self._store.close()
        self._runner.close()

    def _make_parts(self) -> tuple[Any, Any]:
        runner = SqliteRunner(self._path, lease_s=0.0001, clock=lambda: self.now_ms)
        return CountingSqliteStore(self._path), runner

    def bring(self, *said: Said) -> None:
        """The runner returns results in the order of dispatch, and drops those of replaced dispatches. A
        stage delivers what the test says, in its order."""
        for execution in dict.fromkeys(one.workflow_execution_id for one in said):
            theirs = [one for one in said if one.workflow_execution_id == execution]
            for one in theirs:
                if isinstance(one, ResultEvent):
                    self._runner.submit(one)
            self._runner.gather(execution)
            self._decide(execution, *theirs)

    def _drop_job(self, job: DispatchJob) -> None:
        with self._store._db.write_transaction() as db:
            db.execute("DELETE FROM tasks WHERE token = ?", [job.token])

    @property
    def executions(self) -> list[str]:
        return [row[0] for row in self._query("SELECT workflow_execution_id FROM workflows")]

    def places(self, key: str) -> list[Place]:
        rows = self._query(
            "SELECT workflow_execution_id, step_id, token, is_held FROM places WHERE key = ? ORDER BY number",
            key,
        )
        return sorted(((*row[:3], bool(row[3])) for row in rows), key=lambda place: not place[3])

    def _slot_keys(self) -> list[str]:
        return [row[0] for row in self._query("SELECT DISTINCT key FROM places")]

    def _query(self, text: str, *arguments: str) -> list[Any]:
        with self._store._db.read_transaction() as db:
            return list(db.execute(text, arguments))


class CountingSqliteStore(Counting, SqliteStore):
    pass
