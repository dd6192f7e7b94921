"""Errors inside scripts: the n-th write command of a script fails, on a real server.

    with failing_command("commit", 3, WRONG_TYPE):
        world.coordinator("one").run_once()

A local named `redis` stands before the text of the script, and hides the one that Redis provides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from orchestrator.redis_rq import scripts
from orchestrator.redis_rq.connection import Client

WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
NO_PERMISSION = "NOPERM this user has no permissions to run the command"
OUT_OF_MEMORY = "OOM command not allowed when used memory > 'maxmemory'."
EXHAUSTED = "ERR The stream has exhausted the last possible ID, unable to add more items"
HIT = "tests:fault-hit"
"""A key that exists when the fault was reached."""

READS = "EXISTS GET HEXISTS HGET HMGET HGETALL LLEN LINDEX TIME"
READS += " XINFO XPENDING XRANGE XREVRANGE ZCARD ZRANGE ZSCORE"

PRELUDE = """
local real, writes, reads = redis, 0, {{}}
for name in string.gmatch("{reads}", "%u+") do reads[name] = true end
local function fails(name)
  if reads[name] then return false end
  writes = writes + 1
  if writes ~= {position} or ("{only}" ~= "" and name ~= "{only}") then return false end
  real.call("SET", "{hit}", "1")
  return true
end
local redis = {{ sha1hex = real.sha1hex, REDIS_VERSION_NUM = real.REDIS_VERSION_NUM }}
function redis.pcall(name, ...)
  if fails(name) then return {{ err = "{error}" }} end
  return real.pcall(name, ...)
end
function redis.call(name, ...)
  if fails(name) then error({{ err = "{error}" }}, 0) end
  return real.call(name, ...)
end
"""


MAX_POSITION = 40
"""No script has more write commands in these tests."""


def failing_positions(
    client: Client,
    script: str,
    error: str,
    prepare: Callable[[], object],
    act: Callable[[], object],
    only: str = "",
) -> Iterator[int]:
    """The positions of the write commands of a script, or of its commands `only`. Before each, Redis is
    emptied and something is prepared, and then done while the command at that position fails."""
    for position in range(1, MAX_POSITION):
        client.flushall()
        prepare()
        with failing_command(script, position, error, only):
            act()
        if client.delete(HIT):
            yield position
        elif not only:
            return


@contextmanager
def failing_command(script: str, position: int, error: str, only: str = "") -> Iterator[None]:
    """Within the block, the write command at this position of a script fails, for clients that are made
    there. With `only`, if it is that command."""
    prelude = PRELUDE.format(reads=READS, position=position, error=error, only=only, hit=HIT)
    text, init = scripts.script_text, scripts.Script.__init__

    def faulty_init(self: scripts.Script, client: Any, name: str, *shared: str) -> None:
        first = (*shared, name)[0]

        def faulty_text(part: str) -> str:
            return prelude + text(part) if part == first and name == script else text(part)

        with patch.object(scripts, "script_text", faulty_text):
            init(self, client, name, *shared)

    with patch.object(scripts.Script, "__init__", faulty_init):
        yield
