"""Lines in Redis: one stream for each execution, in the order in which they were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from typing import Any

from orchestrator.application.records.events import iso, parse_iso_ms
from orchestrator.application.records.step_log import MAX_LINES_PER_EXECUTION, LogLine
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.keys import Keys

_SCRIPT = files(f"{__package__}.lua").joinpath("lines.lua").read_text()


def add_log_lines(pipe: Any, keys: Keys, workflow_execution_id: str, lines: Sequence[LogLine]) -> None:
    """Put into a pipeline what writes lines; the script is sent whole, since a pipeline cannot ask for it."""
    own, record = keys.lines(workflow_execution_id), keys.workflow(workflow_execution_id)
    for run, said in groupby(lines, lambda one: (one.step, one.run_id, one.attempt)):
        words = [word for one in said for word in (one.at, one.text)]
        pipe.eval(_SCRIPT, 1, own, record, MAX_LINES_PER_EXECUTION, *run, *words)


def read_log_lines(
    client: Client, keys: Keys, workflow_execution_id: str, after: str = ""
) -> list[tuple[str, LogLine]]:
    """The lines of an execution behind an entry, with the ids of theirs."""
    start = f"({after}" if after else "-"
    with translate_errors():
        entries: Any = client.xrange(keys.lines(workflow_execution_id), start)
    return [(entry_id, line) for entry_id, fields in entries if (line := _read(fields)) is not None]


def _read(fields: Mapping[str, str]) -> LogLine | None:
    """Anybody can XADD: what is no line of ours is not there."""
    try:
        at = iso(parse_iso_ms(fields["at"]))
        return LogLine(fields["step"], int(fields["run_id"]), int(fields["attempt"]), at, fields["text"])
    except (KeyError, ValueError, OverflowError):
        return None
