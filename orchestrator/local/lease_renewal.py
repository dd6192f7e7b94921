"""LeaseRenewal: renews the leases of the jobs that run in this process, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial

from orchestrator.backend.ports import LeasedRunner
from orchestrator.local.job_pool import JobPool
from orchestrator.local.threads import run_in_thread

logger = logging.getLogger(__name__)


class LeaseRenewal:
    def __init__(self, pool: JobPool, leased: LeasedRunner, lock: threading.Lock) -> None:
        """`lock` is that of the run loop."""
        self._pool, self._leased, self._lock = pool, leased, lock
        self._is_running = False

    def start(self) -> None:
        """Renew the leases of the runs, in a thread, until there are none. Under the lock."""
        if not self._is_running:
            self._is_running = True
            run_in_thread(partial(self._renew_until_done, self._leased.lease_s / 4))

    def _renew_until_done(self, interval_s: float) -> None:
        while True:
            time.sleep(interval_s)
            with self._lock:
                runs = list(self._pool.runs)
                if not runs:
                    self._is_running = False
                    return
            try:
                self._pool.renew_leases(runs)
            except Exception as error:  # the next renewal may succeed
                logger.warning("cannot renew the leases of %d steps: %s", len(runs), error)
