"""WorkflowTest: a workflow that a test runs, skips through time, talks to, and kills at named points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Self, get_args

from orchestrator.application.values.durations import parse_ms
from orchestrator.testing.clock import format_time, to_datetime
from orchestrator.testing.documents import Document, ExecutorsArgument, ExecutorSet, spec_of, steps_of
from orchestrator.testing.driver import ResultOrder, SimulatedSystem
from orchestrator.testing.errors import WorkflowTestError, unknown_name_error
from orchestrator.testing.execution import Execution
from orchestrator.testing.kill_points import Kill, KillPoint
from orchestrator.testing.mocks import Call, CallRouter, Mock

DEFAULT_START = "2026-01-01T00:00:00Z"
MAX_CALLS = 10_000


class WorkflowTest(Execution):
    """An execution of a workflow in this process. Nothing happens before run() or skip(), and nobody sleeps.

    With the same arguments everything happens in the same way. `order="shuffled"` takes jobs and results in
    an order that `seed` decides, and brings some results twice: who depends on luck fails for some seeds.
    """

    def __init__(
        self,
        workflow: Document,
        inputs: Mapping[str, Any] | None = None,
        *,
        executors: ExecutorsArgument = None,
        workflows: Mapping[str, Document] | None = None,
        starts_at: str | datetime = DEFAULT_START,
        execution_id: str = "rehearsal",
        group: str | None = None,
        order: ResultOrder = "dispatched",
        seed: int = 0,
        max_calls: int = MAX_CALLS,
    ) -> None:
        """`executors` are modules or their names, functions by name, or one function (fn, inputs); without
        any, every step needs a mock. `workflows` are those that steps start by their name. `max_calls` is how
        many calls of executors one run() or skip() may come to."""
        if order not in get_args(ResultOrder):
            raise unknown_name_error("there is no order", order, get_args(ResultOrder))
        loaded = spec_of(workflow)
        registered = {name: spec_of(document) for name, document in (workflows or {}).items()}
        self._name, self._order, self._seed = loaded.spec.name or "a workflow", order, seed
        call_router = CallRouter(ExecutorSet(executors), steps_of([loaded, *registered.values()]))
        system = SimulatedSystem(call_router, _ms(starts_at), order, seed, max_calls)
        for name, child in registered.items():
            system.backend.register(name, child.document)
        given = None if inputs is None else dict(inputs)
        super().__init__(system, system.backend.create(loaded.document, given, execution_id, group=group))

    # ---- who performs

    def mock(self, name: str, answer: Any = None, *, takes: str | int = 0) -> Mock:
        """Let a mock answer for an executor, by its name or for one step by its id.

        The answer is an output; an exception, which is raised; a function of the inputs; or a list or an
        iterator of such, one for each call. `takes` is a duration: the result comes that much later, or never
        if the step's `timeout` is shorter.
        """
        return self._system.call_router.add(Mock(name, answer, _duration_ms(takes)))

    def calls(self, name: str) -> list[Call]:
        """The inputs of every call of an executor, by its name or by the id of a step."""
        self._system.call_router.check(name)
        return [call for call in self._system.call_router.calls if call.matches(name)]

    def executed(self, name: str) -> int:
        """How often an executor was called, by its name or by the id of a step."""
        return len(self.calls(name))

    # ---- what happens

    def run(self, *, skip_waits: bool = False) -> Self:
        """Until it has ended, or nothing can happen without time, a signal or a control.

        With `skip_waits` time passes too, as long as there are delays, deferrals, back-offs or slow steps.
        """
        with self._acting():
            self._system.run_until_idle()
            while skip_waits and (due_ms := self._system.next_due_ms(("retry", "wake"))) is not None:
                self._system.advance_clock(due_ms)
        return self

    def skip(self, duration: str | int) -> Self:
        """Let time pass: what becomes due happens, in order, each at its own time."""
        until_ms = self._system.clock() + _duration_ms(duration)
        with self._acting():
            self._system.advance_clock(until_ms)
        return self

    def skip_to_next(self) -> Self:
        """Let time pass until something happens by the clock."""
        with self._acting():
            self._system.run_until_idle()
            due_ms = self._system.next_due_ms()
            if due_ms is None:
                raise WorkflowTestError(f"nothing will ever happen by the clock: {self._situation()}")
            self._system.advance_clock(due_ms)
        return self

    @property
    def now(self) -> datetime:
        """The time of the rehearsal, in UTC."""
        return to_datetime(self._system.clock())

    # ---- who dies

    def kill(self, point: KillPoint, step: str | None = None, times: int = 1) -> Kill:
        """Kill a process when it reaches a point (`KILL_POINTS`) while it works on this step, or on any step. The
        rest happens as in production."""
        if step is not None:
            self._system.call_router.check_step(step)
        return self._system.kills.order(point, step, times)

    @property
    def kills(self) -> list[Kill]:
        """What was ordered, and how much of it has happened."""
        return list(self._system.kills)

    def check_kills(self) -> None:
        """Raise WorkflowTestError when a kill has not happened: the test has not shown what it claims."""
        missed = [str(kill) for kill in self._system.kills if kill.is_due]
        if missed:
            raise WorkflowTestError(f"nobody came to a point where somebody was to die: {'; '.join(missed)}")

    @property
    def counters(self) -> Counter[str]:
        """How many results were dropped as `stale` or `late`, and how many dispatches were `lost`."""
        return Counter(self._system.store.counters)

    # ---- what is said of it

    def __str__(self) -> str:
        """Where it stands, for whoever must understand a test that failed."""
        shuffled = f", order='shuffled', seed={self._seed}" if self._order == "shuffled" else ""
        lines = [f"rehearsal of {self._name} at {format_time(self.now)}{shuffled}: {self._situation()}"]
        width = max(map(len, self.statuses), default=0)
        for step_id, status in self.statuses.items():
            error = self.step(step_id).error
            why = f"  {error['kind']}: {error['message']}" if error is not None else ""
            lines.append(f"  {step_id:{width}}  {status}{why}")
        return "\n".join([*lines, *(f"  killed: {kill}" for kill in self._system.kills)])

    def __repr__(self) -> str:
        return f"<WorkflowTest of {self._name}: {self._situation()}>"

    def _situation(self) -> str:
        waits = self.waits_for
        return f"it is {self.status}" + (f", and waits for {'; '.join(waits)}" if waits else "")

    @contextmanager
    def _acting(self) -> Iterator[None]:
        """Whatever is raised out of a shuffled rehearsal says which one it was."""
        self._system.reset_call_count()
        try:
            yield
        except BaseException as error:
            if self._order == "shuffled":
                error.add_note(f"rehearsed with order='shuffled', seed={self._seed}")
            raise


def _duration_ms(duration: str | int) -> int:
    try:
        return parse_ms(duration)
    except ValueError as error:
        raise WorkflowTestError(f"{duration!r} is no duration: it {error}") from error


def _ms(at: str | datetime) -> int:
    try:
        found = datetime.fromisoformat(at) if isinstance(at, str) else at
    except ValueError as error:
        raise WorkflowTestError(f"starts_at: {error}") from error
    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)
