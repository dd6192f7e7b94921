"""The coordinator reads events, decides on them, and commits the decisions.

    run -> run_once -> handle(batch):  classify -> load -> decide -> commit (commits.py)

An event may arrive twice, late or out of order, at one coordinator or at two, and the process may die between
any two arrows. A commit writes record, history, timers, jobs and acknowledgement at once, so there are two
cases:

    crashed before the commit    the event is still pending; another coordinator reclaims it
    crashed after the commit     nothing to repair

An event that cannot be read, or that was delivered too often, goes to the dead letters and blocks no other
event.

An event may kill the coordinator that handles it, and must then be told apart from the events that were read
with it. Events that are reclaimed for the first time are handled as a batch. Events that are delivered again
after that are claimed and handled one by one, so that only the event that kills is delivered once more. A
slow coordinator keeps the events that it has read: between two turns it renews the rest.

A batch is handled in one turn, unless it takes too much work (`Turn`): then a turn ends early, commits, and
the rest of the batch follows in further turns. No decision is kept from one turn to the next.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast

from orchestrator.application.engine.turn import Turn
from orchestrator.application.errors import AccessDenied, RecordNotFound, Unavailable
from orchestrator.application.records.events import (
    ControlEvent,
    Moment,
    ScheduleEvent,
    SignalEvent,
    StartEvent,
    StepEvent,
)
from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.application.values.rejection_kinds import RejectionKind
from orchestrator.backend.backend import Backend
from orchestrator.backend.ports import Definitions, Delivery, EventLog
from orchestrator.coordinator.commits import Commits
from orchestrator.coordinator.decider import Decider
from orchestrator.coordinator.options import CoordinatorOptions
from orchestrator.coordinator.pending_commit import PendingCommit, internal_error
from orchestrator.coordinator.periodic import PeriodicTask
from orchestrator.coordinator.rejections import Rejections
from orchestrator.coordinator.schedules import Schedules
from orchestrator.coordinator.starts import Starts
from orchestrator.coordinator.sweeps import Sweeps
from orchestrator.coordinator.waiting_events import InProcessChecker, SpecChecker

__all__ = ["Coordinator", "CoordinatorOptions", "Pace", "StopSignal"]

logger = logging.getLogger(__name__)

Pace = CoordinatorOptions
"""The former name, kept for one release."""

FIRST_PAUSE_S, MAX_PAUSE_S = 0.05, 2.0


class Coordinator:
    def __init__(
        self,
        backend: Backend,
        log: EventLog,
        definitions: Definitions,
        options: CoordinatorOptions | None = None,
        nonce: Callable[[], str] = lambda: secrets.token_urlsafe(8),
        routes: TagRoutes | None = None,
        repair: Callable[[], object] = lambda: None,
        checker: SpecChecker | None = None,
    ) -> None:
        """`repair` is called now and then, to repair executions that were written in part. `checker` checks
        large documents."""
        self._backend, self._log, self._rejections = backend, log, Rejections(log)
        self._options, self._nonce = options or CoordinatorOptions(), nonce
        self._starts = Starts(
            backend,
            log,
            definitions,
            routes or TagRoutes(),
            self._options,
            self._moment,
            checker or InProcessChecker(),
        )
        self._has_taken = False
        self._decider = Decider(backend, self._rejections, self._options.jobs_per_commit, self._moment)
        self._schedules = Schedules(definitions.schedules, log)
        self._sweeps = Sweeps(log, self._options.sweep_every_s)
        self._commits = Commits(
            backend,
            log,
            self._starts,
            self._decider,
            self._options,
            self._moment,
            self._sweeps.expect_timer,
        )
        self._periodic_tasks: list[Callable[[], object]] = [
            self._sweeps.run_if_due,
            PeriodicTask(self._options.reclaim_every_s, self._reclaim).run_if_due,
            PeriodicTask(self._options.trim_every_s, self._log.trim).run_if_due,
            PeriodicTask(self._options.repair_every_s, repair).run_if_due,
            PeriodicTask(self._options.renew_every_s, self._starts.waiting.renew).run_if_due,
        ]
        self._task_problems: dict[int, str] = {}
        self._is_stopping: Callable[[], bool] = lambda: False
        self._waiting: Sequence[Delivery] = ()  # events that were read, and are not in the batch at hand
        self._renewed_at = time.monotonic()

    # ---- the loop

    def run(self, stop: StopSignal) -> None:
        """Serve until `stop` is set. The batch that was read by then is finished.

        Once it serves, no event and no reply of the store ends the coordinator. An error that it does not
        expect is logged, and it goes on after a pause.
        """
        self._is_stopping = stop.is_set
        has_served, must_resume, pause_s = False, True, FIRST_PAUSE_S
        while not stop.is_set():
            try:
                if must_resume:
                    self.resume_unfinished()
                    logger.info("serving")
                    has_served, must_resume = True, False
                self.run_once()
                pause_s = FIRST_PAUSE_S
            except Unavailable as error:
                if pause_s == FIRST_PAUSE_S:
                    logger.warning("the store is unavailable; retrying: %s", error)
                must_resume = True
            except Exception as error:
                if not has_served or isinstance(error, AccessDenied):
                    raise
                self._report_unexpected(error)
                must_resume = True
            if must_resume:
                stop.wait(pause_s)
                pause_s = min(pause_s * 2, MAX_PAUSE_S)
        self._close()

    def _report_unexpected(self, error: Exception) -> None:
        logger.error("an unexpected error; going on", exc_info=error)

    def run_once(self) -> int:
        """Run the periodic tasks that are due, then read and handle new events; returns their number."""
        for position, run_if_due in enumerate(self._periodic_tasks):
            self._run_task(position, run_if_due)
        deliveries = self._read()
        self._renewed_at = time.monotonic()
        self._handle_in_batches(deliveries)
        return len(deliveries)

    def _read(self) -> Sequence[Delivery]:
        """New events, or those whose document has been checked meanwhile. The two take turns, so that no
        other event waits for all events with large documents."""
        checked = () if self._has_taken else self._starts.waiting.take()
        self._has_taken = bool(checked)
        if checked:
            return checked
        block_ms = self._starts.waiting.limit_block(self._options.block_ms)
        return self._sweeps.read(self._options.batch, block_ms)

    def _run_task(self, position: int, run_if_due: Callable[[], object]) -> None:
        """Run a periodic task. An unexpected error of one must not stop the others, nor the events; the same
        error is logged once in a row."""
        try:
            run_if_due()
        except (Unavailable, AccessDenied):
            raise
        except Exception as error:
            if self._task_problems.get(position) != str(error):
                self._report_unexpected(error)
            self._task_problems[position] = str(error)
        else:
            self._task_problems.pop(position, None)

    def _handle_in_batches(self, deliveries: Sequence[Delivery]) -> None:
        """Handle what was read; each stream may have returned a whole batch."""
        batch = self._options.batch
        for at in range(0, len(deliveries), batch):
            self._waiting = deliveries[at + batch :]
            self._renew_if_due(deliveries[at : at + batch])
            self.handle(deliveries[at : at + batch])

    def _renew_if_due(self, deliveries: Sequence[Delivery]) -> None:
        """Renew the heartbeat, and the events that are not handled yet: else other coordinators would take
        this one for dead, and handle them too."""
        renew_every_s, now = self._options.renew_every_s, time.monotonic()
        if now - self._renewed_at >= renew_every_s:
            self._sweeps.run()
            self._log.renew([*deliveries, *self._waiting], round(renew_every_s * 1000))
            self._renewed_at = time.monotonic()

    def resume_unfinished(self) -> None:
        """Start, or go on after an outage: cached records may be stale, and events that were read before are
        handled first."""
        self._backend.drop_cached_records()
        self._log.open()
        self._sweeps.run()
        waiting = self._starts.waiting
        self._handle_for_a_while(self._log.read_unfinished(self._options.batch, waiting))

    def _close(self) -> None:
        self._starts.waiting.close()
        try:
            self._log.close()
        except Unavailable as error:
            logger.warning("the store is unavailable at shutdown: %s", error)

    def _reclaim(self) -> None:
        """Take over events of a coordinator that died."""
        after_ms, waiting = self._options.reclaim_after_ms, self._starts.waiting
        self._handle_for_a_while(self._log.reclaim(after_ms, self._options.batch, waiting))

    def _handle_for_a_while(self, batches: Iterable[Sequence[Delivery]]) -> None:
        """Handle batches of old events for a limited time, because new events wait meanwhile. A batch that is
        not reached was not claimed yet, and is found again the next time."""
        until, self._waiting = time.monotonic() + self._options.reclaim_for_s, ()
        for batch in batches:
            self.handle(batch)
            if self._is_stopping() or time.monotonic() >= until:
                return

    # ---- one batch

    def handle(self, deliveries: Sequence[Delivery]) -> None:
        """Decide on the events of a batch and commit, in as many turns as that takes; events that could not
        share a commit follow alone."""
        separate = self._handle_in_turns(deliveries)
        for position, delivery in enumerate(separate):
            self._renew_if_due(separate[position:])
            self._handle_in_turns([delivery])

    def _handle_in_turns(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Handle events turn by turn. Returns the events to be handled alone, which a single event never
        is."""
        separate: list[Delivery] = []
        while deliveries:
            deliveries, alone = self._take_turn_safely(deliveries)
            separate += alone
            if deliveries:
                self._renew_if_due([*deliveries, *separate])
        return separate

    def _take_turn_safely(self, deliveries: Sequence[Delivery]) -> tuple[Sequence[Delivery], list[Delivery]]:
        """Take a turn. After an unexpected error each event is handled alone. One that is alone is rejected,
        or stays pending if even that is impossible."""
        try:
            return self._take_turn(deliveries)
        except (Unavailable, AccessDenied):
            raise
        except Exception as error:
            self._report_unexpected(error)
            if len(deliveries) > 1:
                return (), list(deliveries)
            self._reject_after(error, deliveries[0])
            return (), []

    def _reject_after(self, error: Exception, delivery: Delivery) -> None:
        try:
            self._rejections.dead_letter(delivery, internal_error(error), kind=RejectionKind.INTERNAL)
        except (Unavailable, AccessDenied):
            raise
        except Exception as second:
            self._report_unexpected(second)

    def _take_turn(self, deliveries: Sequence[Delivery]) -> tuple[Sequence[Delivery], list[Delivery]]:
        """Decide on all events and commit in one round trip. Returns the events that follow in the next turn,
        because this one is over, and the events to be handled alone."""
        turn = self._new_turn()
        deliveries, unread = self._limit_size(deliveries)
        starts, others = self._classify(deliveries)
        creations: list[PendingCommit] = []
        if starts:
            built, later = self._starts.build_all(starts, turn)
            creations = self._starts.hold_back(built)
            if later:  # an event may be for an execution that one of these starts creates
                return [*later, *others, *unread], self._commits.commit(creations)
        if creations and any(isinstance(one.event, SignalEvent | ControlEvent) for one in others):
            # A signal or control may be for an execution that is created by this very batch.
            self._commits.commit(creations)
            creations = []
        grouped = self._starts.await_specs(self._group_by_execution(others))
        decided, later = self._decider.decide_all(grouped, turn)
        return [*later, *unread], self._commits.commit(creations + decided)

    def _limit_size(self, deliveries: Sequence[Delivery]) -> tuple[Sequence[Delivery], Sequence[Delivery]]:
        """The events that are small enough to be parsed in one turn, at least one, and the others."""
        size = 0
        for position, delivery in enumerate(deliveries):
            if size >= self._options.bytes_per_turn:
                return deliveries[:position], deliveries[position:]
            size += delivery.size
        return deliveries, ()

    def _new_turn(self) -> Turn:
        return Turn(self._options.work_per_turn)

    def _classify(self, deliveries: Iterable[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """Starts, and all other events. Unreadable and undeliverable events are rejected, and schedule events
        are handled."""
        starts: list[Delivery] = []
        others: list[Delivery] = []
        for delivery in deliveries:
            if delivery.ref in self._starts.waiting:
                continue  # it was delivered again, after an outage
            if delivery.delivery_count > self._options.max_deliveries:
                self._commits.reject_undeliverable(
                    delivery, f"delivered {delivery.delivery_count} times and never completed"
                )
            elif delivery.event is None:
                problem = delivery.problem or "the event cannot be read"
                self._rejections.dead_letter(delivery, problem, kind=RejectionKind.UNREADABLE)
            elif isinstance(delivery.event, ScheduleEvent):
                self._schedules.handle(delivery)
            else:
                (starts if isinstance(delivery.event, StartEvent) else others).append(delivery)
        return starts, others

    def _group_by_execution(self, deliveries: Iterable[Delivery]) -> dict[str, list[Delivery]]:
        grouped: dict[str, list[Delivery]] = {}
        for delivery in deliveries:
            event = cast("StepEvent", delivery.event)
            execution: str | None = event.workflow_execution_id
            if isinstance(event, SignalEvent | ControlEvent):
                execution = self._resolve_execution(delivery, event)
            if execution is not None:
                grouped.setdefault(execution, []).append(delivery)
        return grouped

    def _resolve_execution(self, delivery: Delivery, event: SignalEvent | ControlEvent) -> str | None:
        """The full id of the execution that a signal or control names by either of its ids; None when there
        is no such execution. Then a signal is kept for an execution that may start later, and a control is
        rejected."""
        for _ in range(self._options.max_conflicts):
            try:
                return self._backend.find(event.workflow_execution_id)
            except RecordNotFound as error:
                if isinstance(event, ControlEvent):
                    self._rejections.reply_or_reject(delivery, str(error))
                    return None
                if self._log.keep_early_signal(delivery):
                    return None
        return None

    def _moment(self, delivery: Delivery) -> Moment:
        return Moment(delivery.at_ms, self._nonce(), delivery.sent_as.entry_id, self._log.has_secrets)


class StopSignal(Protocol):
    """As threading.Event."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> bool: ...
