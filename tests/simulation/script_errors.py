"""Errors inside scripts: one write command of a script has an error, and the script must know what it means.

    error = ScriptError(position=3, keys=world.keys, creates=[...], exists=...)
    server.script_error = error                    # until it has struck, or the script has ended

Only keys whose content follows from the record have an error. The others are left out: a reply, a counter, a
shared value and an acknowledgement are not repaired (docs/decisions.md), and a producer whose start is
rejected would have to start again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.redis_rq.keys import Keys

WRITES = frozenset({"DEL", "EXPIRE", "HDEL", "HSET", "RPUSH", "XADD", "ZADD", "ZREM"})
ERROR = "OOM command not allowed when used memory > 'maxmemory'."


class ScriptError:
    """The write at `position` has an error, counted among the writes that may have one. Those of a creation
    may after its record is written."""

    def __init__(
        self,
        position: int,
        keys: Keys,
        creates: Sequence[str] = (),
        exists: Callable[..., int] = lambda *_: 0,
    ) -> None:
        self._position, self._creates, self._exists = position, creates, exists
        self._prefixes = (
            *(keys.leases, keys.timers, keys.index("")[:-1], keys.history(""), keys.workflow("")),
            *(keys.events(0)[:-1], "rq:queue:", "rq:job:", "rq:failed:"),
        )
        self.has_struck = False

    def strikes(self, name: str, key: Any) -> bool:
        """Whether the command has an error."""
        if self.has_struck or name not in WRITES or not str(key).startswith(self._prefixes):
            return False
        if self._creates and self._exists(*self._creates) < len(self._creates):
            return False
        self._position -= 1
        self.has_struck = self._position < 0
        return self.has_struck
