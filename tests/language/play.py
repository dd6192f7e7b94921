"""A case played by chance: what happens next is drawn, again and again, until all executions have ended.

Results come late, in any order, several at a time and some of them twice; so does what executions say to each
other. Time passes and signals are sent somewhere between. A racing case meets operators, losses and timeouts
besides, and may be opened again when it has ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from typing import Any

from language.cases import Case, Start
from language.laws import check_ended, check_going, check_sums, essence, owner_of
from language.random_specs import SHORT_S
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import Control, ResultEvent, StartedEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus
from worlds.documents import Json
from worlds.engine_checks import all_timers

MOST_ACTS = 4_000
HORIZON_MS = 2 * SHORT_S * 1000
SCOPES = ("global", "flow_group")
CONTROLS: tuple[Control, ...] = ("cancel", "pause", "unpause", *("hold",) * 4, "release", "release")

RESTING = (StepStatus.READY, StepStatus.RETRY, StepStatus.DEFERRED, StepStatus.WAITING, StepStatus.ON_HOLD)

Said = ResultEvent | StartedEvent


class Play(ABC):
    """`undelivered` are results that no coordinator has seen, `delivered` all others."""

    def __init__(self, case: Case, draw: Random, now_ms: int) -> None:
        self.case, self.draw, self.now_ms = case, draw, now_ms
        self.undelivered: list[Said] = []
        self.delivered: list[Said] = []
        self.running: dict[str, DispatchJob] = {}
        self._answered: set[tuple[str, str, int]] = set()
        self._held: set[tuple[str, str]] = set()
        self._released: set[tuple[str, str]] = set()
        self._acts: list[str] = []
        self._controls_left = 0 if case.is_quiet else draw.choice([0, 2, 5, 10])
        self._redrives_left = 0 if case.is_quiet else draw.choice([0, 1, 2])

    def play(self) -> Json:
        """Returns what must not depend on the order: of every execution, and of the values they share."""
        for start in self.case.starts:
            self.start(start)
        for _ in range(MOST_ACTS):
            self._work()
            records, has_mail = self.open_records(), self.has_mail()
            check_going(records, is_quiet=not has_mail)
            self._check_holds(records)
            if records or has_mail:
                self._act(records, has_mail)
            elif not self._reopens():
                return self._end()
        raise AssertionError(f"no end after {MOST_ACTS} acts: {self._acts[-40:]}")

    # ---- what a stage of a play can do

    @abstractmethod
    def start(self, start: Start) -> None:
        """Start an execution, with the signals that come early."""

    @abstractmethod
    def new_jobs(self) -> list[DispatchJob]:
        """Take the jobs that were dispatched since."""

    @abstractmethod
    def has_mail(self) -> bool:
        """Whether an outgoing event has not been delivered yet."""

    @abstractmethod
    def hear(self) -> None:
        """Handle some of it."""

    @abstractmethod
    def bring(self, said: Sequence[Said]) -> None: ...

    @abstractmethod
    def signal(self, execution: str, name: str, payload: Any) -> None: ...

    @abstractmethod
    def control(self, execution: str, action: Control, step_id: str) -> None:
        """What is refused is refused."""

    @abstractmethod
    def pass_time(self, ms: int) -> None:
        """Let time pass, and everything ring that is due by then."""

    @abstractmethod
    def lose(self, job: DispatchJob) -> None: ...

    @abstractmethod
    def upset(self) -> None:
        """What a process may suffer without a trace: to be replaced, to forget what it knew."""

    @abstractmethod
    def open_records(self) -> list[WorkflowRecord]:
        """All executions that have not ended."""

    @abstractmethod
    def all_records(self) -> list[WorkflowRecord]: ...

    @abstractmethod
    def history(self, record: WorkflowRecord) -> list[Json]: ...

    @abstractmethod
    def shared(self, owners: Sequence[tuple[str, str]]) -> list[Json]: ...

    @abstractmethod
    def check_clean(self) -> None:
        """Nothing is left beside the records."""

    # ---- acts

    def _work(self) -> None:
        """Execute what was dispatched; its result is on its way from now on."""
        for job in self.new_jobs():
            output, error = self.case.executes(job)
            self.running[job.token] = job
            self.undelivered.append(
                ResultEvent(
                    job.workflow_execution_id,
                    job.step_id,
                    output,
                    error,
                    job.run_id,
                    job.attempt,
                    job.token,
                    "tester",
                )
            )

    def _act(self, records: Sequence[WorkflowRecord], has_mail: bool) -> None:
        draw = self.draw
        signals, due_ms = self._signals(records), self._next_due(records)
        acts = ["bring"] * 4 if self.undelivered else []
        acts += ["hear"] * 4 if has_mail else []
        acts += ["signal"] if signals else []
        acts += ["time"] if due_ms is not None and due_ms - self.now_ms <= HORIZON_MS else []
        if not acts and not self.case.is_quiet:
            self._answered.clear()  # another one that waits for the same may have taken what was said
            signals = self._signals(records)
            acts = ["signal"] if signals else []
        if not acts:
            acts = self._last_resorts(records)
        elif draw.random() < 0.1:
            acts = ["upset"]
        elif records and not self.case.is_quiet and draw.random() < 0.25:
            acts = ["control"] * 3 * bool(self._controls_left) + ["lose", "started", "noise"]
        assert acts, f"nothing can happen any more: {self._acts[-40:]}"
        act = draw.choice(acts)
        self._acts.append(act)
        match act:
            case "bring":
                self.bring(self._batch())
            case "hear":
                self.hear()
            case "signal":
                self._say(draw.choice(signals))
            case "time":
                assert due_ms is not None
                extra = draw.choice([0, 0, draw.randint(0, 60_000)])
                self.pass_time(max(due_ms - self.now_ms, 0) + extra)
            case "upset":
                self.upset()
            case "control":
                self._controls_left -= 1
                self._control(draw.choice(records), draw.choice(CONTROLS))
            case "lose" | "started":
                self._report(act)
            case "noise":
                record = draw.choice(records)
                self.signal(record.workflow_execution_id, draw.choice(["shared", "nobody"]), {"n": 0})
            case "unpause":
                for record in records:
                    self._settle_control(record)

    def _last_resorts(self, records: Sequence[WorkflowRecord]) -> list[str]:
        """Nothing happens by itself any more: it is for operators, and for the longest timeouts."""
        resting = [one for record in records for one in record.steps.values()]
        is_held = any(one.status is StepStatus.ON_HOLD for one in resting)
        if is_held or any(record.status == "paused" for record in records):
            return ["unpause"]
        return ["time"] if not self.case.is_quiet and self._next_due(records) is not None else []

    def _batch(self) -> list[Said]:
        """Some results that are on their way, in any order, and some that have come before."""
        draw = self.draw
        batch = draw.sample(self.undelivered, draw.randint(1, min(3, len(self.undelivered))))
        for one in batch:
            self.undelivered.remove(one)
            self.running.pop(str(one.token), None)
        again = draw.sample(self.delivered, min(len(self.delivered), draw.choice([0, 0, 1, 2])))
        self.delivered += batch
        if draw.random() < 0.1:
            again += batch
        return draw.sample([*batch, *again], len(batch) + len(again))

    def _signals(self, records: Sequence[WorkflowRecord]) -> list[tuple[str, str, int]]:
        """The waits that are to be answered and were not; in a racing case every wait is, or times out."""
        found = []
        for record in records:
            for step_id, step in record.steps.items():
                wait = (record.workflow_execution_id, step_id, step.run_id)
                if step.status is not StepStatus.WAITING or wait in self._answered:
                    continue
                if self.case.waits[step_id].signal is not None or not self.case.is_quiet:
                    found.append(wait)
        return found

    def _say(self, wait: tuple[str, str, int]) -> None:
        execution, step_id, _ = wait
        self._answered.add(wait)
        name = self.case.waits[step_id].signal or f"go_{step_id}"
        self.signal(execution, name, self.payload(step_id))

    def payload(self, step_id: str) -> Json:
        return {"n": Random(f"{self.case.seed} {step_id}").randint(0, 9)}

    def early_signals(self) -> list[tuple[str, Json]]:
        return [
            (str(wait.signal), self.payload(step_id))
            for step_id, wait in self.case.waits.items()
            if wait.is_early
        ]

    def _next_due(self, records: Sequence[WorkflowRecord]) -> int | None:
        return min((timer.due_ms for record in records for timer in all_timers(record)), default=None)

    def _control(self, record: WorkflowRecord, action: Control) -> None:
        step_id = ""
        if action in ("hold", "release"):
            resting = [name for name, step in record.steps.items() if step.status in RESTING]
            step_id = self.draw.choice(resting * 3 + [*record.graph.order])
        self._tell(record, action, step_id)

    def _tell(self, record: WorkflowRecord, action: Control, step_id: str = "") -> None:
        if action == "release":
            self._released.add((record.workflow_execution_id, step_id))
        self.control(record.workflow_execution_id, action, step_id)

    def _reopens(self) -> bool:
        """Retry an execution that has ended, or rerun it from any step; False when neither is chosen."""
        ended = [one for one in self.all_records() if one.parent is None and one.compensated is None]
        ended = [one for one in ended if one.status != "halted"]
        if not self._redrives_left or not ended:
            return False
        self._redrives_left -= 1
        record = self.draw.choice(sorted(ended, key=lambda one: one.execution_id))
        action: Control = "rerun" if record.status == "complete" else self.draw.choice(["retry", "rerun"])
        self._acts.append(action)
        self._tell(record, action, self.draw.choice(record.graph.order) if action == "rerun" else "")
        return True

    def _check_holds(self, records: Sequence[WorkflowRecord]) -> None:
        """Nothing but a release takes a step from its hold, or the end of the workflow."""
        going = {record.workflow_execution_id: record for record in records}
        held = {
            (weid, step_id)
            for weid, record in going.items()
            for step_id, step in record.steps.items()
            if step.status is StepStatus.ON_HOLD
        }
        freed = {
            one for one in self._held - held if one[0] in going and going[one[0]].status != "compensating"
        }
        assert freed <= self._released, f"{freed - self._released} went on without a release"
        self._released -= freed
        self._held = held

    def _settle_control(self, record: WorkflowRecord) -> None:
        if record.status == "paused":
            self._tell(record, "unpause")
        for step_id, step in record.steps.items():
            if step.status is StepStatus.ON_HOLD:
                self._tell(record, "release", step_id)

    def _report(self, what: str) -> None:
        """A worker has begun, or died with what it was doing; its result may come all the same."""
        if not self.running:
            return
        job = self.draw.choice(sorted(self.running.values(), key=lambda one: one.token))
        if what == "lose":
            self.lose(job)
        else:
            ids = (job.workflow_execution_id, job.step_id, job.run_id, job.attempt, job.token)
            self.bring([StartedEvent(*ids)])

    # ---- the end

    def _end(self) -> Json:
        late, self.undelivered = self.undelivered, []
        if late:
            self.bring(late)  # it changes nothing any more
            while self.has_mail():
                self.hear()
        records = {record.execution_id: record for record in self.all_records()}
        histories = {name: self.history(record) for name, record in records.items()}
        check_ended(records, histories)
        self.check_clean()
        owners = sorted({(scope, owner_of(one, scope)) for one in records.values() for scope in SCOPES})
        shared = dict(zip(owners, self.shared(owners), strict=True))
        check_sums(list(records.values()), histories, shared)
        return {
            "records": {name: essence(record) for name, record in sorted(records.items())},
            "shared": {":".join(owner): values for owner, values in shared.items()},
        }


def shuffled(draw: Random, found: Sequence[Any]) -> list[Any]:
    return draw.sample(list(found), len(found))
