"""Children of a process of ours: begun by a fork, and begun again when they die, but not in a frenzy."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any, NoReturn

from orchestrator.redis_rq.connection import backoff_delays

logger = logging.getLogger(__name__)

QUICK_DEATH_S = 5.0


def fork(run_child: Callable[[], Any]) -> int:
    """The pid of a child that does this and nothing else."""
    pid = os.fork()
    if pid == 0:
        _be(run_child)
    return pid


def _be(run_child: Callable[[], Any]) -> NoReturn:
    """It never returns into the code of its parent."""
    code = 1
    try:
        run_child()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        logger.exception("this process ends")
    finally:
        logging.shutdown()
        os._exit(code)


class RestartBackoff:
    """Whether another child may begin now: not soon, if the last ones died as soon as they began."""

    def __init__(self) -> None:
        self._pauses, self._not_before = backoff_delays(0.1, 10.0), 0.0

    def on_death(self, began_at: float) -> None:
        now = time.monotonic()
        if now - began_at < QUICK_DEATH_S:
            self._not_before = now + next(self._pauses)
        else:
            self._pauses = backoff_delays(0.1, 10.0)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._not_before
