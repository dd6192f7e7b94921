"""Lines in Redis: one stream for each execution, in the order in which they were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from typing import Any

from orchestrator.application.records.events import iso, milliseconds
from orchestrator.application.records.step_log import MOST_KEPT, Line
from orchestrator.redis_rq.connection import Client, translated
from orchestrator.redis_rq.keys import Keys

_SCRIPT = files(f"{__package__}.lua").joinpath("lines.lua").read_text()


def add_lines(pipe: Any, keys: Keys, workflow_execution_id: str, lines: Sequence[Line]) -> None:
    """Put into a pipeline what writes lines; the script is sent whole, since a pipeline cannot ask for it."""
    own, record = keys.lines(workflow_execution_id), keys.workflow(workflow_execution_id)
    for run, said in groupby(lines, lambda one: (one.step, one.run_id, one.attempt)):
        words = [word for one in said for word in (one.at, one.text)]
        pipe.eval(_SCRIPT, 1, own, record, MOST_KEPT, *run, *words)


def read_lines(
    client: Client, keys: Keys, workflow_execution_id: str, after: str = ""
) -> list[tuple[str, Line]]:
    """The lines of an execution behind an entry, with the ids of theirs."""
    start = f"({after}" if after else "-"
    with translated():
        entries: Any = client.xrange(keys.lines(workflow_execution_id), start)
    return [(entry_id, line) for entry_id, fields in entries if (line := _read(fields)) is not None]


def _read(fields: Mapping[str, str]) -> Line | None:
    """Anybody can XADD: what is no line of ours is not there."""
    try:
        at = iso(milliseconds(fields["at"]))
        return Line(fields["step"], int(fields["run_id"]), int(fields["attempt"]), at, fields["text"])
    except (KeyError, ValueError, OverflowError):
        return None
