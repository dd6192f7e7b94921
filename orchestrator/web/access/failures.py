"""Counts wrong tokens."""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)

MAX_FAILURES, FAILURE_PERIOD_S = 20, 60.0


@dataclass(slots=True)
class FailureLimit:
    """More than MAX_FAILURES wrong tokens within FAILURE_PERIOD_S, of all addresses together, are too many.

    It makes guessing visible in the log, and does not prevent it: a correct token always works, so that no
    one can lock out a user. Tokens are too long to be guessed.
    """

    failed_at: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_FAILURES + 1))
    warned_at: float | None = None

    def count(self) -> bool:
        """Count one, and return whether there are too many."""
        now = time.monotonic()
        self.failed_at.append(now)
        is_too_many = len(self.failed_at) > MAX_FAILURES and self.failed_at[0] > now - FAILURE_PERIOD_S
        if is_too_many and (self.warned_at is None or self.warned_at <= now - FAILURE_PERIOD_S):
            self.warned_at = now
            logger.warning("more than %d wrong tokens within a minute: are they guessed?", MAX_FAILURES)
        return is_too_many
