"""ReadSize: how many entries of each stream one read asks for.

Redis does not tell how large an entry is before it sends it, and one may have 8 MiB. So a read asks for few
entries after a quiet time, for twice as many as the last one found while there are more, and for fewer after
a read of many bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from orchestrator.backend.ports import Delivery

QUIET_COUNT = 16
"""After a quiet time a read asks for this many entries, of all streams together."""
MAX_BYTES = 1024 * 1024


class ReadSize:
    def __init__(self, streams: int = 1, quiet_count: int = QUIET_COUNT) -> None:
        self._quiet_count = self._count = max(quiet_count // streams, 1)

    def limit(self, count: int) -> int:
        """How many entries of each stream the next read asks for, at most `count`."""
        return min(count, self._count)

    def adapt(self, found: Sequence[Delivery]) -> None:
        """Choose the size of the next read by what the last one has found."""
        most = max(Counter(delivery.ref.stream for delivery in found).values(), default=0)
        size = sum(delivery.size for delivery in found)
        if size > MAX_BYTES:
            self._count = max(most * MAX_BYTES // size, 1)
        else:
            self._count = max(2 * most, min(2 * self._count, self._quiet_count))
