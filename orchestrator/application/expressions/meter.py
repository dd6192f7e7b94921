"""Meter: limits the work of expressions. A unit of work is about a microsecond.

Whatever visits items, reads or builds text, or copies data spends in proportion, before it does the work. So
the limit holds for every operator and every nesting, and the cost of an evaluation does not depend on caches.
docs/performance.md lists what a unit was measured to take.
"""

from __future__ import annotations

from orchestrator.application.errors import ExpressionError

MAX_WORK = 100_000
"""What one step may spend in one decision: a tenth of a second."""
MAX_WORK_ON_WORKER = 5_000_000
"""What an expression may spend on a worker, where nothing else waits for it."""


class Meter:
    """Counts the units that were spent. ExpressionError beyond the limit."""

    __slots__ = ("_max_work", "limit", "spent")

    def __init__(self, max_work: int = MAX_WORK) -> None:
        self._max_work = self.limit = max_work
        self.spent = 0

    def spend(self, work: int) -> None:
        self.spent += work
        if self.spent > self.limit:
            raise ExpressionError(
                f"this takes more than {self._max_work:,} units of work:"
                " let an executor do it, such as transform"
            )

    def begin(self, spent_before: int = 0) -> None:
        """Begin the work of another step, which has already spent something in this turn."""
        self.limit = self.spent - spent_before + self._max_work
