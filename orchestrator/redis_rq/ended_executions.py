"""The executions that have ended, in the order of their last commits, for a process that follows them.

    open() -> every commit that ends an execution adds it -> read() -> remove() what is done with

The commit adds the execution, so none is missed, and none is added whose end was not written. What was not
removed is read again, also after a restart. While there is no such stream, a commit adds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.keys import Keys

MAX_ENDS = 100_000
"""About how many executions are kept for a process that does not run: then the oldest are dropped."""


def end_command(workflow_execution_id: str, keys: Keys) -> list[str | int | float]:
    """The command that adds an ended execution, if a process follows."""
    entry: list[str | int | float] = ["*", "execution", workflow_execution_id]
    return ["XADD", keys.ends, "NOMKSTREAM", "MAXLEN", "~", MAX_ENDS, *entry]


@dataclass(frozen=True, slots=True)
class EndedExecutions:
    client: Client
    keys: Keys

    def open(self) -> None:
        """From now on, commits add the executions that end."""
        with translate_errors():
            if not self.client.exists(self.keys.ends):
                entry: Any = self.client.xadd(self.keys.ends, {"execution": ""})
                self.client.xdel(self.keys.ends, entry)

    def read(self, count: int, after: str = "-") -> list[tuple[str, str]]:
        """The oldest entries: their ids, and the full ids of the executions."""
        with translate_errors():
            found: Any = self.client.xrange(self.keys.ends, min=after, count=count)
        return [(entry, fields.get("execution", "")) for entry, fields in found]

    def remove(self, entries: list[str]) -> None:
        with translate_errors():
            self.client.xdel(self.keys.ends, *entries)

    def count(self) -> int:
        with translate_errors():
            return int(self.client.xlen(self.keys.ends))

    def close(self) -> None:
        """From now on, commits add nothing."""
        with translate_errors():
            self.client.delete(self.keys.ends)
