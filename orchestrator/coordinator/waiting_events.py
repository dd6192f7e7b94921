"""WaitingEvents: the events whose documents are checked or loaded outside of the loop.

    the document is too large for a turn ─▸ add ─▸ its check is done ─▸ take ─▸ the event is handled

An event waits for the document of a start, or for that of an execution that the coordinator does not have in
memory. It stays pending in the log, and is renewed, so that no other coordinator takes it over. This memory
may be lost: after a crash another coordinator takes the event over and checks its document again. Few events
are kept at a time. Further ones are parked: only their place in the log is known, and they are read again
when it is their turn. When too many wait, no new starts are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from orchestrator.application.errors import InvalidSpec, OrchestratorError
from orchestrator.application.records.events import StartEvent
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.backend.ports import Delivery, EventLog, EventRef
from orchestrator.coordinator.large_document import LargeDocument
from orchestrator.coordinator.options import CoordinatorOptions

POLL_MS = 20
"""How long a read of new events may block while a document is checked."""
CREATED_BYTES = 256 * 1024
"""The documents of the starts that are taken at once have about this many characters: creating an execution
costs time for every step."""


class CheckFailed(OrchestratorError):
    """A document could not be checked; its start is rejected with this reason."""


class CheckPending(Exception):
    """A document has to be checked or loaded first."""

    def __init__(self, document: LargeDocument) -> None:
        super().__init__("the document has to be checked first")
        self.document = document


Checked = LoadedSpec | InvalidSpec | CheckFailed


class SpecChecker(Protocol):
    """Checks documents that are too large for a turn of a coordinator."""

    def submit(self, document: LargeDocument) -> None:
        """Check a document, after those that were submitted before."""
        ...

    def finished(self) -> Sequence[tuple[LargeDocument, Checked]]:
        """The documents whose checks have ended since the last call, with the results."""
        ...

    def close(self) -> None:
        """Stop now; what is submitted and not finished is lost."""
        ...


class InProcessChecker:
    """Checks documents at once, in the loop: where nothing else waits for the coordinator."""

    def __init__(self) -> None:
        self._finished: list[tuple[LargeDocument, Checked]] = []

    def submit(self, document: LargeDocument) -> None:
        result: Checked
        try:
            result = document.load()
        except InvalidSpec as error:
            result = error
        self._finished.append((document, result))

    def finished(self) -> list[tuple[LargeDocument, Checked]]:
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        self._finished = []


@dataclass(frozen=True, slots=True)
class _Parked:
    """An event whose content is not kept, and the hash of its document. `per_turn` of such events are handled
    at once."""

    delivery: Delivery
    document_hash: int
    per_turn: int


class WaitingEvents:
    def __init__(self, checker: SpecChecker, log: EventLog, options: CoordinatorOptions) -> None:
        self._checker, self._log, self._options = checker, log, options
        self._kept: dict[EventRef, tuple[Delivery, LargeDocument]] = {}
        self._parked: dict[EventRef, _Parked] = {}
        self._results: dict[LargeDocument, Checked] = {}
        self._current: tuple[LargeDocument, Checked] | None = None

    def __contains__(self, ref: object) -> bool:
        return ref in self._kept or ref in self._parked

    def add(self, delivery: Delivery, document: LargeDocument) -> None:
        """Let an event wait for its document."""
        if len(self._kept) >= self._options.max_documents:
            without_content = replace(delivery, source=None, fields={})
            per_turn = self._count_per_turn(delivery, document)
            self._parked[delivery.ref] = _Parked(without_content, hash(document), per_turn)
            self._log.reads_starts = len(self._parked) < self._options.max_waiting_starts
            return
        if not self._is_awaited(document):
            self._checker.submit(document)
        self._kept[delivery.ref] = delivery, document

    def find(self, document: LargeDocument) -> LoadedSpec | None:
        """The spec of the events that were taken last, if this is their document: a creation may be built
        more than once. Raises the error of a check that has failed."""
        if self._current is None or self._current[0] != document:
            return None
        if isinstance(self._current[1], LoadedSpec):
            return self._current[1]
        raise self._current[1]

    def take(self) -> Sequence[Delivery]:
        """Events that wait no longer, all of one document: it is checked, or there is room for it now. There
        are as many as a turn can handle."""
        self._results.update(self._checker.finished())
        document = next((one for _, one in self._kept.values() if one in self._results), None)
        if document is not None:
            return self._take_checked(document)
        self._current = None
        if self._parked and len(self._kept) < self._options.max_documents:
            first = next(iter(self._parked.values()))
            return self._unpark(first.document_hash, first.per_turn)
        return ()

    def _take_checked(self, document: LargeDocument) -> list[Delivery]:
        self._current = document, self._results[document]
        refs = [ref for ref, (_, other) in self._kept.items() if other == document]
        count = self._count_per_turn(self._kept[refs[0]][0], document)
        del refs[count:]
        taken = [self._kept.pop(ref)[0] for ref in refs]
        if not self._is_awaited(document):
            del self._results[document]
        return taken + self._unpark(hash(document), count - len(taken))

    def _unpark(self, document_hash: int, count: int) -> list[Delivery]:
        """Read the next of the parked events again, all with the same document."""
        parked = [one.delivery for one in self._parked.values() if one.document_hash == document_hash]
        for one in parked[:count]:
            del self._parked[one.ref]
        self._log.reads_starts = len(self._parked) < self._options.max_waiting_starts
        return self._log.read_again(parked[:count]) if parked[:count] else []

    def _count_per_turn(self, delivery: Delivery, document: LargeDocument) -> int:
        """How many events of a document are handled in a turn. A start creates every step of it."""
        if not isinstance(delivery.event, StartEvent):
            return self._options.batch
        return max(CREATED_BYTES // max(len(document.text), 1), 1)

    def _is_awaited(self, document: LargeDocument) -> bool:
        return any(document == other for _, other in self._kept.values())

    def limit_block(self, block_ms: int) -> int:
        """How long a read of new events may block: not long while events wait here."""
        return min(block_ms, POLL_MS) if self._kept or self._parked else block_ms

    def renew(self) -> None:
        """Keep other coordinators from taking these events over."""
        waiting = [
            *(delivery for delivery, _ in self._kept.values()),
            *(one.delivery for one in self._parked.values()),
        ]
        if waiting:
            self._log.renew(waiting, round(self._options.renew_every_s * 1000))

    def close(self) -> None:
        self._checker.close()
