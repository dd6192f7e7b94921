"""What `orchestrator run --log-format json` shows while it waits: JSON objects, a line each."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from orchestrator.cli.output.report import humanize

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord

logger = logging.getLogger("orchestrator.run")
logger.setLevel(logging.INFO)  # it was asked for by whoever runs a workflow, whatever its services log


class LoggedProgress:
    """Lines of the services stand as they are; our own, and what executors print, become lines like them."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream, self._seen = stream or sys.stderr, 0

    def print_text(self, line: str, child: str = "") -> None:
        if _is_object(line):
            self._stream.write(f"{line}\n")  # at once: others write from threads of their own
        else:
            logger.info("%s", line, extra={"child": child} if child else None)

    def show(self, record: WorkflowRecord, history: Iterable[dict[str, Any]]) -> None:
        entries = list(history)
        for entry in entries[self._seen :]:
            if "to" in entry:
                of_step = {name: entry[name] for name in ("step", "run_id", "attempt")}
                extra = {"execution": record.workflow_execution_id, **of_step, "event": entry["cause"]}
                logger.info("%s: %s", entry["step"], humanize(entry["to"]), extra=extra)
        self._seen = len(entries)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
