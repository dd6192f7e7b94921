"""WorkflowTest: a workflow that a test runs, advances in time, controls, and kills at named points."""

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
    """An execution of a workflow in this process. Nothing runs before run() or skip(), and nothing sleeps.

    The same arguments give the same run. With `order="shuffled"`, the order of jobs and results depends on
    `seed`, and some results are delivered twice: a workflow with a race fails for some seeds.
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
        any, every step needs a mock. `workflows` are the registered workflows that steps start by name.
        `max_calls` limits the calls of executors in one run() or skip()."""
        if order not in get_args(ResultOrder):
            raise unknown_name_error("unknown order", order, get_args(ResultOrder))
        loaded = spec_of(workflow)
        registered = {name: spec_of(document) for name, document in (workflows or {}).items()}
        self._name, self._order, self._seed = loaded.spec.name or "a workflow", order, seed
        call_router = CallRouter(ExecutorSet(executors), steps_of([loaded, *registered.values()]))
        system = SimulatedSystem(call_router, _ms(starts_at), order, seed, max_calls)
        for name, child in registered.items():
            system.backend.register(name, child.document)
        own_inputs = None if inputs is None else dict(inputs)
        super().__init__(
            system, system.backend.create(loaded.document, own_inputs, execution_id, group=group)
        )

    # ---- executors

    def mock(self, name: str, answer: Any = None, *, takes: str | int = 0) -> Mock:
        """Replace an executor by a mock: by its name, or for one step by the id of the step.

        The answer is an output; an exception, which is raised; a function of the inputs; or a list or an
        iterator of these, one for each call. `takes` is a duration: the result arrives that much later, or
        never if the step's `timeout` is shorter.
        """
        return self._system.call_router.add(Mock(name, answer, _duration_ms(takes)))

    def calls(self, name: str) -> list[Call]:
        """The inputs of every call of an executor, by its name or by the id of a step."""
        self._system.call_router.check(name)
        return [call for call in self._system.call_router.calls if call.matches(name)]

    def executed(self, name: str) -> int:
        """The number of calls of an executor, by its name or by the id of a step."""
        return len(self.calls(name))

    # ---- time

    def run(self, *, skip_waits: bool = False) -> Self:
        """Run until the workflow has ended, or waits for time to pass, a signal or a control.

        With `skip_waits`, time passes too, as long as there are delays, deferrals, back-offs or slow steps.
        """
        with self._annotate_errors():
            self._system.run_until_idle()
            while skip_waits and (due_ms := self._system.next_due_ms(("retry", "wake"))) is not None:
                self._system.advance_clock(due_ms)
        return self

    def skip(self, duration: str | int) -> Self:
        """Let time pass: do what becomes due, in order, each at its own time."""
        until_ms = self._system.clock() + _duration_ms(duration)
        with self._annotate_errors():
            self._system.advance_clock(until_ms)
        return self

    def skip_to_next(self) -> Self:
        """Let time pass until the next timer or result."""
        with self._annotate_errors():
            self._system.run_until_idle()
            due_ms = self._system.next_due_ms()
            if due_ms is None:
                raise WorkflowTestError(f"no timer and no result is pending: {self._describe()}")
            self._system.advance_clock(due_ms)
        return self

    @property
    def now(self) -> datetime:
        """The simulated time, in UTC."""
        return to_datetime(self._system.clock())

    # ---- kills

    def kill(self, point: KillPoint, step: str | None = None, times: int = 1) -> Kill:
        """Kill a process when it reaches a point (`KILL_POINTS`) for this step, or for any step. The system
        recovers as in production."""
        if step is not None:
            self._system.call_router.check_step(step)
        return self._system.kills.add(point, step, times)

    @property
    def kills(self) -> list[Kill]:
        """The planned kills, and how often each has happened."""
        return list(self._system.kills)

    def check_kills(self) -> None:
        """Raise WorkflowTestError when a planned kill has not happened: the test has not tested it."""
        missed = [str(kill) for kill in self._system.kills if kill.is_due]
        if missed:
            raise WorkflowTestError(f"no process reached these kill points: {'; '.join(missed)}")

    @property
    def counters(self) -> Counter[str]:
        """How many results were dropped as `stale` or `late`, and how many dispatches were `lost`."""
        return Counter(self._system.store.counters)

    # ---- text

    def __str__(self) -> str:
        """The state of the workflow, for the report of a failed test."""
        shuffled = f", order='shuffled', seed={self._seed}" if self._order == "shuffled" else ""
        lines = [f"test of {self._name} at {format_time(self.now)}{shuffled}: {self._describe()}"]
        width = max(map(len, self.statuses), default=0)
        for step_id, status in self.statuses.items():
            error = self.step(step_id).error
            reason = f"  {error['kind']}: {error['message']}" if error is not None else ""
            lines.append(f"  {step_id:{width}}  {status}{reason}")
        return "\n".join([*lines, *(f"  killed: {kill}" for kill in self._system.kills)])

    def __repr__(self) -> str:
        return f"<WorkflowTest of {self._name}: {self._describe()}>"

    def _describe(self) -> str:
        waits = self.waits_for
        return f"it is {self.status}" + (f", and waits for {'; '.join(waits)}" if waits else "")

    @contextmanager
    def _annotate_errors(self) -> Iterator[None]:
        """Add the seed of a shuffled test to every exception."""
        self._system.reset_call_count()
        try:
            yield
        except BaseException as error:
            if self._order == "shuffled":
                error.add_note(f"tested with order='shuffled', seed={self._seed}")
            raise


def _duration_ms(duration: str | int) -> int:
    try:
        return parse_ms(duration)
    except ValueError as error:
        raise WorkflowTestError(f"{duration!r} is not a duration: it {error}") from error


def _ms(at: str | datetime) -> int:
    try:
        start = datetime.fromisoformat(at) if isinstance(at, str) else at
    except ValueError as error:
        raise WorkflowTestError(f"starts_at: {error}") from error
    aware = start if start.tzinfo is not None else start.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)
