"""Forks child processes, and delays the restart of children that die as soon as they start."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any, NoReturn

from orchestrator.processes import flush_output
from orchestrator.redis_rq.connection import backoff_delays

logger = logging.getLogger(__name__)

QUICK_DEATH_S = 5.0


def fork(run_child: Callable[[], Any]) -> int:
    """Fork a child that calls `run_child` and exits. Returns its pid."""
    pid = os.fork()
    if pid == 0:
        _run_and_exit(run_child)
    return pid


def _run_and_exit(run_child: Callable[[], Any]) -> NoReturn:
    """Never returns, so the child does not continue with its parent's code."""
    code = 1
    try:
        run_child()
        code = 0
    except SystemExit as exit_request:
        code = exit_request.code if isinstance(exit_request.code, int) else int(exit_request.code is not None)
    except BaseException:
        logger.exception("this process exits because of an error")
    finally:
        logging.shutdown()
        flush_output()
        os._exit(code)


class RestartBackoff:
    """Delays the start of the next child, longer each time, while children die within QUICK_DEATH_S."""

    def __init__(self) -> None:
        self._delays, self._start_at = backoff_delays(0.1, 10.0), 0.0

    def on_death(self, began_at: float) -> None:
        now = time.monotonic()
        if now - began_at < QUICK_DEATH_S:
            self._start_at = now + next(self._delays)
        else:
            self._delays = backoff_delays(0.1, 10.0)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._start_at
