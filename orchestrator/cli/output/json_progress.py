"""The progress of `orchestrator run --log-format json` on the standard error: one JSON object per line."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from orchestrator.application.explain.history_text import describe_move
from orchestrator.cli.output.escaping import format_json

if TYPE_CHECKING:
    from orchestrator.application.explain.status_view import StatusView

logger = logging.getLogger("orchestrator.run")
logger.setLevel(logging.INFO)  # progress is always shown; --log-level is about the coordinator and workers


class LoggedProgress:
    """Logs progress and what executors print; log lines of the services, which are JSON, pass unchanged,
    except that control characters are escaped: an executor may print JSON too."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream, self._seen = stream or sys.stderr, 0

    def print_text(self, line: str, child: str = "") -> None:
        if (value := _read_json_object(line)) is not None:
            text = line if line.isprintable() else format_json(value)
            self._stream.write(f"{text}\n")  # in one call: other threads write to the same stream
        else:
            logger.info("%s", line, extra={"child": child} if child else None)

    def show(self, view: StatusView, history: Iterable[dict[str, Any]]) -> None:
        entries = list(history)
        for entry in entries[self._seen :]:
            if "to" in entry:
                of_step = {name: entry[name] for name in ("step", "run_id", "attempt")}
                extra = {"execution": view.record.workflow_execution_id, **of_step, "event": entry["cause"]}
                logger.info("%s: %s", entry["step"], describe_move(entry), extra=extra)
        self._seen = len(entries)


def _read_json_object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
