"""Step logs in Redis: one stream per execution, in the order in which the lines were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from typing import Any

from orchestrator.application.records.events import iso, parse_iso_ms
from orchestrator.application.records.step_log import MAX_LINES_PER_EXECUTION, LogLine
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.keys import Keys

_SCRIPT = files(f"{__package__}.lua").joinpath("append_step_log.lua").read_text()


def add_log_lines(pipe: Any, keys: Keys, workflow_execution_id: str, lines: Sequence[LogLine]) -> None:
    """Add the commands that write log lines to a pipeline. They carry the whole script, because a pipeline
    cannot load a script that the server does not have."""
    step_log, record = keys.step_log(workflow_execution_id), keys.workflow(workflow_execution_id)
    for run, lines_of_run in groupby(lines, lambda one: (one.step, one.run_id, one.attempt)):
        args = [arg for line in lines_of_run for arg in (line.at, line.text)]
        pipe.eval(_SCRIPT, 1, step_log, record, MAX_LINES_PER_EXECUTION, *run, *args)


def read_log_lines(
    client: Client, keys: Keys, workflow_execution_id: str, after: str = ""
) -> list[tuple[str, LogLine]]:
    """The log lines of an execution after an entry, each with its entry id."""
    start = f"({after}" if after else "-"
    with translate_errors():
        entries: Any = client.xrange(keys.step_log(workflow_execution_id), start)
    return [(entry_id, line) for entry_id, fields in entries if (line := _read(fields)) is not None]


def _read(fields: Mapping[str, str]) -> LogLine | None:
    """None for an entry that is not a log line of ours: any client can XADD."""
    try:
        at = iso(parse_iso_ms(fields["at"]))
        return LogLine(fields["step"], int(fields["run_id"]), int(fields["attempt"]), at, fields["text"])
    except (KeyError, ValueError, OverflowError):
        return None
