"""Turn: the work of a coordinator between two commits.

A turn may decide on many executions. When it has spent its work, it ends: what was decided is committed, and
the rest follows in the next turn. A decision stops between two events or between two steps; its commit has a
`continue` event if steps are left. So no decision is kept in memory, and other executions wait for a bounded
time. docs/performance.md has the figures.
"""

from __future__ import annotations

from math import inf

from orchestrator.application.expressions.meter import MAX_WORK, Meter

MAX_TURN_WORK = 40_000
"""A turn ends when it has spent this. Its last step may spend MAX_WORK beyond it."""
TRANSITION_WORK = 40
"""What it takes to decide and to write one transition of a step."""
CREATED_STEP_WORK = 7
"""What it takes to create and to write one step of a new execution."""
DOCUMENT_BYTE_WORK = 2
"""What it takes to read and to check one byte of a document."""


class Turn(Meter):
    """Counts what the expressions and the transitions of a turn spend. Without a limit it never ends."""

    __slots__ = ("_end",)

    def __init__(self, max_work: float = inf) -> None:
        self._max_work = self.limit = MAX_WORK  # every decision makes a turn: no call of the base class
        self.spent, self._end = 0, max_work

    def is_over(self, transitions: int = 0) -> bool:
        """Whether the work is spent; `transitions` are those that are not counted yet."""
        return self.spent + transitions * TRANSITION_WORK >= self._end

    def count(self, transitions: int = 0, created_steps: int = 0, document_bytes: int = 0) -> None:
        """Count the transitions of a decision, and the steps and the document of a new execution."""
        self.spent += transitions * TRANSITION_WORK + created_steps * CREATED_STEP_WORK
        self.spent += document_bytes * DOCUMENT_BYTE_WORK
