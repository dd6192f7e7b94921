"""Positions to work through in order, without touching the sorted list they are kept in."""

from __future__ import annotations

from heapq import heappop, heappush

from orchestrator.application.records.readiness import PositionChanges


class Agenda(PositionChanges):
    """A sorted list, of which a decision has taken some and to which it has added others."""

    __slots__ = ("_at", "_heap", "_kept")

    def __init__(self, kept: list[int]) -> None:
        super().__init__()
        self._kept, self._at = kept, 0
        self._heap: list[int] = []

    @property
    def is_empty(self) -> bool:
        return not self._heap and self._at >= len(self._kept)

    def add(self, position: int) -> None:
        if position not in self.added:
            self.added.add(position)
            heappush(self._heap, position)

    def discard(self, position: int) -> None:
        """It is not to be taken any more, whether it was or not."""
        self.added.discard(position)
        self.taken.add(position)

    def take(self) -> int | None:
        """The lowest position; None when there is none left."""
        heap, kept = self._heap, self._kept
        if not heap and self._at >= len(kept):
            return None
        self._pass_over_discarded()
        at = self._at
        if heap and (at >= len(kept) or heap[0] <= kept[at]):
            position = heappop(heap)
            self.added.discard(position)
            if at < len(kept) and kept[at] == position:
                self._at = at + 1  # it stands on both: it is taken once
        elif at < len(kept):
            position = kept[at]
            self._at = at + 1
        else:
            return None
        self.taken.add(position)
        return position

    def _pass_over_discarded(self) -> None:
        added, taken = self.added, self.taken
        while self._heap and self._heap[0] not in added:
            heappop(self._heap)
        while self._at < len(self._kept) and (at := self._kept[self._at]) in taken and at not in added:
            self._at += 1
