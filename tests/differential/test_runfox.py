"""The published runfox 0.0.7 is the oracle: what it decides, this project decides too.

Random workflows (specs.py names what is left out, and why) and the examples of the seed are run on both.
oracle.py has the exceptions that were decided. Compared are the type of the result, the outcome, the state,
the statuses and run_ids of all steps, and every job with its inputs, in order.

The engine alone applies results in the order of dispatch, as runfox's own run() does. Workflow.run() applies
them in the order in which they arrive; with several threads that order differs from run to run. It is
recorded, and runfox gets the results in the same order. So nothing is left out of the comparison, although
keys that concurrent steps write depend on the order in runfox too.

ORCHESTRATOR_DIFFERENTIAL_SPECS sets how many workflows (50; 1,000 with --full), and
ORCHESTRATOR_DIFFERENTIAL_SEED the first.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from threading import Lock
from typing import Any

import pytest
import runfox

from differential.oracle import Oracle
from differential.specs import FEATURES, Case, random_case
from effort import count
from orchestrator import Backend, Workflow
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.backend import InProcessRunner
from orchestrator.backend.ports import Commit, Committed, Runner
from worlds.documents import Json
from worlds.engine_world import Execute, run, world_of
from worlds.records import same_numbers

SPECS = int(os.environ.get("ORCHESTRATOR_DIFFERENTIAL_SPECS", count(50, 1_000)))
FIRST_SEED = int(os.environ.get("ORCHESTRATOR_DIFFERENTIAL_SEED", "0"))
CHUNKS = count(2, 10)
MOST_ROUNDS = 5_000


@dataclass
class Told:
    """How one execution went, in the words both have."""

    result: str = ""
    outcome: Any = None
    state: Json = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    run_ids: dict[str, int] = field(default_factory=dict)
    waves: list[list[tuple[str, int, Any]]] = field(default_factory=list)

    @property
    def executions(self) -> Counter[str]:
        return Counter(step_id for wave in self.waves for step_id, _, _ in wave)


def told_by_runfox(document: Json, inputs: Json, execute: Execute) -> Told:
    """runfox's own run(), spelled out because of D2: after a halt it would go on applying results."""
    oracle = Oracle(document, inputs)
    told, calls = Told(), Counter[str]()
    for _ in range(MOST_ROUNDS):
        decision = oracle.advance()
        if not isinstance(decision, runfox.Dispatch):
            break
        results = []
        told.waves.append(wave(decision.jobs))
        for job in decision.jobs:
            try:
                output = execute(job.op, deepcopy(job.inputs), calls[job.op])
            except Exception as error:  # as runfox's InProcessWorker does
                output = {"error": str(error), "ok": False}
            calls[job.op] += 1
            results.append((job.op, output))
        for op, output in results:
            if oracle.apply(op, output):
                break  # D2: final is final
    return ended(told, decision, oracle)


def wave(jobs: Sequence[Any]) -> list[tuple[str, int, Any]]:
    return [(job.op, job.run_id, same_numbers(job.inputs)) for job in jobs]


def ended(told: Told, decision: Any, oracle: Oracle) -> Told:
    record = oracle.record
    told.result, told.outcome = type(decision).__name__, same_numbers(record.outcome)
    told.state = same_numbers(record.state)
    for op, step in record.steps.items():
        # D2, U12: what is active when a branch halts is cancelled here, and left as it was by runfox.
        active = record.status == runfox.WorkflowStatus.HALTED and step.status in ("in_progress", "retry")
        told.statuses[op] = "cancelled" if active else str(step.status)
        told.run_ids[op] = step.run_id
    return told


def told_by_us(document: Json, inputs: Json, execute: Execute) -> Told:
    world = world_of(deepcopy(document), inputs=deepcopy(inputs))
    decision = run(world, execute)
    return Told(
        result=type(decision).__name__,
        outcome=same_numbers(decision.outcome),
        state=same_numbers(world.record.state),
        statuses=world.statuses,
        run_ids=world.run_ids,
        waves=[[(job.step_id, job.run_id, same_numbers(job.inputs)) for job in wave] for wave in world.waves],
    )


# ---- Workflow.run(), with one thread and with several

THREADS = [1, 4]


class AnyOrderRunner(InProcessRunner):
    """Gives out one random job of those that are pending."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._draw = Random(seed)

    def take_pending_jobs(self) -> list[DispatchJob]:
        jobs = super().take_pending_jobs()
        self._draw.shuffle(jobs)
        self.return_jobs(jobs[1:])
        return jobs[:1]


@dataclass
class Turn:
    """One commit of Workflow.run(): the results that it applied and the jobs that it dispatched, in order."""

    results: list[tuple[str, int]]
    jobs: list[tuple[str, int, Any]]


class RecordingBackend(Backend):
    """A Backend in memory that records its turns, and the output of each run of a step."""

    def __init__(self, execute: Execute, threads: int, runner: Runner | None = None) -> None:
        super().__init__(self._run, runner=runner, threads=threads)
        self._execute, self._calls, self._lock = execute, Counter[str](), Lock()
        self.turns: list[Turn] = []
        self.outputs: dict[tuple[str, int], Any] = {}

    def _run(self, fn: str, inputs: Json, *, context: Json) -> Any:
        with self._lock:
            calls = self._calls[fn]
            self._calls[fn] += 1
        try:
            output = self._execute(fn, inputs, calls)
        except Exception as error:
            self.outputs[fn, context["run_id"]] = {"ok": False, "error": str(error)}
            raise
        self.outputs[fn, context["run_id"]] = deepcopy(output)
        return output

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        committed = super().commit(commits)
        for commit, result in zip(commits, committed, strict=True):
            if result is Committed.YES:
                results = [(unit, step.run_id) for unit, step in commit.changes.finished_dispatches]
                jobs = [(job.step_id, job.run_id, same_numbers(job.inputs)) for job in commit.changes.jobs]
                self.turns.append(Turn(results, jobs))
        return committed


def run_in_one_process(case: Case, backend: RecordingBackend) -> Told:
    workflow = Workflow.from_dict(deepcopy(case.document), backend, deepcopy(case.inputs))
    decision = workflow.run()
    record = backend.load(workflow.id)
    return Told(
        result=type(decision).__name__,
        outcome=same_numbers(record.outcome),
        state=same_numbers(record.state),
        statuses={step_id: str(step.status) for step_id, step in record.steps.items()},
        run_ids={step_id: step.run_id for step_id, step in record.steps.items()},
        waves=[turn.jobs for turn in backend.turns if turn.jobs],
    )


def replayed_by_runfox(case: Case, backend: RecordingBackend) -> Told:
    """Give runfox the same results, in the order in which Workflow.run() applied them."""
    oracle, told = Oracle(case.document, case.inputs), Told()
    decision: Any = None
    for turn in backend.turns[1:]:  # the first one creates the execution
        for op, run_id in turn.results:
            oracle.apply(op, deepcopy(backend.outputs[op, run_id]))
        decision = oracle.advance()
        if isinstance(decision, runfox.Dispatch):
            told.waves.append(wave(decision.jobs))
    return ended(told, decision, oracle)


@pytest.mark.parametrize("threads", THREADS)
def test_random_workflows_run_in_one_process_as_runfox_runs_them(threads: int) -> None:
    compare_in_one_process(lambda case: RecordingBackend(case.execute, threads))


def test_random_workflows_run_as_runfox_runs_them_whatever_the_order_of_results() -> None:
    compare_in_one_process(lambda case: RecordingBackend(case.execute, 1, AnyOrderRunner(case.seed)))


def compare_in_one_process(make_backend: Callable[[Case], RecordingBackend]) -> None:
    happened: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + SPECS):
        case = random_case(seed)
        backend = make_backend(case)

        ours = run_in_one_process(case, backend)
        theirs = replayed_by_runfox(case, backend)

        assert ours == theirs, f"\n{case}\n{backend.turns}"
        happened.update(what_happened(case, theirs))
    assert all(happened[one] for one in HAPPENINGS), happened


# ---- random workflows


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """json-logic-path logs what it cannot find."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def compare(case: Case) -> Told:
    theirs = told_by_runfox(case.document, case.inputs, case.execute)
    ours = told_by_us(case.document, case.inputs, case.execute)
    assert ours == theirs, f"\n{case}\nORCHESTRATOR_DIFFERENTIAL_SEED={case.seed} runs it again, as the first"
    return theirs


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_workflows_run_as_runfox_runs_them(chunk: int) -> None:
    happened: Counter[str] = Counter()
    seeds = range(FIRST_SEED + chunk, FIRST_SEED + SPECS, CHUNKS)
    for seed in seeds:
        case = random_case(seed)
        happened.update(what_happened(case, compare(case)))

    # In this chunk already, so that no run of this test can be an empty one.
    assert all(happened[one] for one in HAPPENINGS), happened


HAPPENINGS = ("complete", "halt", "looped", "retried", "cancelled", "left ready", "ran in parallel")


def what_happened(case: Case, told: Told) -> set[str]:
    retrying = {step["op"] for step in case.document["steps"] if step.get("max_attempts", 1) > 1}
    happened = {told.result.lower()}
    happened |= {"looped"} if any(n for op, n in told.run_ids.items() if op not in retrying) else set()
    happened |= {"retried"} if any(told.executions[op] > 1 for op in retrying) else set()
    happened |= {"cancelled"} if "cancelled" in told.statuses.values() else set()
    happened |= {"left ready"} if "ready" in told.statuses.values() else set()
    happened |= {"ran in parallel"} if any(len(wave) > 1 for wave in told.waves) else set()
    return happened


def test_the_random_workflows_use_every_feature_often_enough(
    record_property: Callable[[str, object], None],
) -> None:
    used = Counter(
        one for seed in range(FIRST_SEED, FIRST_SEED + SPECS) for one in random_case(seed).features
    )
    for feature in FEATURES:
        record_property(feature, used[feature])

    rare = {feature: used[feature] for feature in FEATURES if used[feature] < 0.05 * SPECS}

    assert not rare, f"of {SPECS} workflows only {rare}"


def test_a_case_is_a_pure_function_of_its_seed() -> None:
    first, again = random_case(7), random_case(7)

    assert first == again
    assert random_case(8) != first


# ---- what the seed and its examples are known to do


@dataclass(frozen=True)
class Known:
    """A workflow, what its executors return, and how it is known to end on runfox's own run()."""

    name: str
    steps: list[Json]
    execute: Execute
    outcome: Any
    executions: dict[str, int]
    result: str = "Complete"
    outputs: Json = field(default_factory=dict)
    inputs: Json = field(default_factory=dict)
    statuses: dict[str, str] | None = None
    run_ids: dict[str, int] | None = None
    on_runfox: Any = None  # its outcome there, where the exceptions of oracle.py make a difference

    @property
    def document(self) -> Json:
        return {"name": self.name, "steps": self.steps, "outputs": self.outputs}


def fibonacci(fn: str, inputs: Json, calls: int) -> Json:
    if fn == "seed":
        return {"fib_n": 0, "fib_n1": 1}
    return {"fib_n": inputs["b"], "fib_n1": inputs["a"] + inputs["b"]}


def raises_twice(fn: str, inputs: Json, calls: int) -> Json:
    if calls < 2:
        raise ValueError(f"call {calls}")
    return {"calls": calls}


def counts(fn: str, inputs: Json, calls: int) -> Json:
    return {"calls": calls, fn: inputs.get("n", 0)}


STATE = {"state": {"var": "state"}}
KNOWN = [
    Known(
        "the Fibonacci loop ends at 233 after 13 runs, because branches see the state before the merge",
        [
            {"op": "seed"},
            {
                "op": "iterate",
                "depends_on": ["seed"],
                "input": {"a": {"var": "state.fib_n"}, "b": {"var": "state.fib_n1"}},
                "branch": [
                    {
                        "condition": {"<": [{"var": "state.fib_n"}, 100]},
                        "action": {"set": "steps.iterate.status", "value": "ready"},
                    },
                    {"condition": {">=": [{"var": "state.fib_n"}, 100]}, "action": "complete"},
                ],
            },
        ],
        fibonacci,
        {"n": 233},
        {"seed": 1, "iterate": 13},
        outputs={"n": {"var": "state.fib_n"}},
        run_ids={"seed": 0, "iterate": 12},
    ),
    Known(
        "a workflow without steps is complete",
        [],
        counts,
        {"n": 3, "literal": [1], "nothing": None},
        {},
        inputs={"n": 3},
        outputs={"n": {"var": "input.n"}, "literal": [1], "nothing": {"var": "state.a"}},
    ),
    Known(
        "outputs accumulate in the state, the last write wins",
        [{"op": "a"}, {"op": "b", "depends_on": ["a"], "input": {"n": {"+": [{"var": "state.a"}, 5]}}}],
        counts,
        {"state": {"calls": 0, "a": 0, "b": 5}},
        {"a": 1, "b": 1},
        outputs=STATE,
    ),
    Known(
        "a fan out and in, declared from the end",
        [
            {"op": "last", "depends_on": ["b", "c"], "input": {"n": {"vars": "steps[*].output.calls"}}},
            {"op": "b", "depends_on": ["a"]},
            {"op": "c", "depends_on": ["a"]},
            {"op": "a"},
        ],
        counts,
        {"seen": [0, 0, 0]},
        {"last": 1, "b": 1, "c": 1, "a": 1},
        outputs={"seen": {"var": "steps.last.output.last"}},
    ),
    Known(
        "a halt returns its result verbatim and leaves what was not started ready",
        [
            {
                "op": "a",
                "branch": [{"condition": True, "action": "halt", "result": {"q": {"var": "input.n"}}}],
            },
            {"op": "b", "depends_on": ["a"]},
        ],
        counts,
        {"q": {"var": "input.n"}},
        {"a": 1},
        result="Halt",
        statuses={"a": "halted", "b": "ready"},
    ),
    Known(
        "a halt without a result gives an empty object",
        [{"op": "a", "branch": [{"condition": {"==": [{"var": "calls"}, 0]}, "action": "halt"}]}],
        counts,
        {},
        {"a": 1},
        result="Halt",
    ),
    Known(
        "max_attempts repeats until the budget is used up (D8: here only with attempts_on any)",
        [{"op": "a", "max_attempts": 3, "attempts_on": "any"}],
        counts,
        {"state": {"calls": 2, "a": 0}},
        {"a": 3},
        outputs=STATE,
        run_ids={"a": 2},
    ),
    Known(
        "a retried error leaves the state when the step completes (ruling on the state after a retry)",
        [{"op": "a", "max_attempts": 3, "attempts_on": "any"}],
        raises_twice,
        {"state": {"calls": 2}},
        {"a": 3},
        outputs=STATE,
        on_runfox={"state": {"error": "call 1", "ok": False, "calls": 2}},
    ),
    Known(
        "a result that is not ok is repeated, and the last one completes the step",
        [{"op": "a", "max_attempts": 3}, {"op": "b", "depends_on": ["a"]}],
        lambda fn, inputs, calls: {"ok": False, "calls": calls} if fn == "a" else {"b": 1},
        {"state": {"ok": False, "calls": 2, "b": 1}},
        {"a": 3, "b": 1},
        outputs=STATE,
        run_ids={"a": 2, "b": 0},
    ),
    Known(
        "a complete branch ends the attempts",
        [
            {
                "op": "a",
                "max_attempts": 9,
                "attempts_on": "any",
                "branch": [{"condition": {">=": [{"var": "calls"}, 1]}, "action": "complete"}],
            }
        ],
        counts,
        {},
        {"a": 2},
    ),
    Known(
        "a set increments the run_id of dependents that never ran",
        [
            {
                "op": "a",
                "branch": [
                    {"condition": {"<": [{"var": "calls"}, 2]}, "action": {"set": "a"}},
                    {"condition": True, "action": "complete"},
                ],
            },
            {"op": "b", "depends_on": ["a"]},
            {"op": "c", "depends_on": ["b"]},
        ],
        counts,
        {},
        {"a": 3, "b": 1, "c": 1},
        run_ids={"a": 2, "b": 2, "c": 2},
    ),
    Known(
        "a set to an ancestor runs all between again",
        [
            {"op": "a"},
            {"op": "b", "depends_on": ["a"]},
            {
                "op": "c",
                "depends_on": ["b"],
                "branch": [
                    {"condition": {"<": [{"var": "calls"}, 1]}, "action": {"set": ["steps.a.status"]}},
                    {"condition": True, "action": "complete"},
                ],
            },
        ],
        counts,
        {"calls": [1, 1, 1]},
        {"a": 2, "b": 2, "c": 2},
        outputs={"calls": {"vars": "steps.*.output.calls"}},
        run_ids={"a": 1, "b": 1, "c": 1},
    ),
    Known(
        "a target may be an expression, evaluated without the fresh output",
        [
            {"op": "a"},
            {
                "op": "b",
                "depends_on": ["a"],
                "branch": [
                    {
                        "condition": {"<": [{"var": "calls"}, 1]},
                        "action": {
                            "set": {
                                "if": [
                                    {"var": {"cat": ["fre", "sh"]}},
                                    "b",
                                    {"cat": ["steps.", "a", ".status"]},
                                ]
                            }
                        },
                    },
                    {"condition": True, "action": "complete"},
                ],
            },
        ],
        lambda fn, inputs, calls: {"fresh": True, "calls": calls},
        {},
        {"a": 2, "b": 2},
    ),
    Known(
        "null is not merged, is absent from steps, and completes",
        [{"op": "a"}, {"op": "b", "depends_on": ["a"]}],
        lambda fn, inputs, calls: None if fn == "a" else {"n": 1},
        {"a": None, "or": "absent", "all": [{"n": 1}]},
        {"a": 1, "b": 1},
        outputs={
            "a": {"var": "steps.a"},
            "or": {"var": ["steps.a.output.n", "absent"]},
            "all": {"vars": "steps[*].output"},
        },
    ),
    Known(
        "an output key shadows a root inside the branches of its step",
        [
            {
                "op": "a",
                "branch": [
                    {"condition": {"==": [{"var": "state.k"}, "mine"]}, "action": "halt", "result": "shadow"}
                ],
            }
        ],
        lambda fn, inputs, calls: {"state": {"k": "mine"}},
        "shadow",
        {"a": 1},
        result="Halt",
    ),
    Known(
        "objects in an input are searched, one-key objects that are no expression too",
        [{"op": "a", "input": {"n": {"timeout": {"deep": {"var": "input.n"}}}}}],
        counts,
        {"a": {"timeout": {"deep": 4}}},
        {"a": 1},
        inputs={"n": 4},
        outputs={"a": {"var": "steps.a.output.a"}},
    ),
]


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_a_known_workflow_ends_as_it_does_on_runfox(known: Known) -> None:
    calls: Counter[str] = Counter()

    def executor(op: str, inputs: Json) -> Any:
        calls[op] += 1
        return known.execute(op, inputs, calls[op] - 1)

    workflow = runfox.Workflow.from_dict(known.document, runfox.Backend(executor=executor), known.inputs)
    by_run = workflow.run()
    ours = told_by_us(known.document, known.inputs, known.execute)

    assert (type(by_run).__name__, same_numbers(workflow.outcome), dict(calls)) == (
        known.result,
        known.on_runfox or known.outcome,
        known.executions,
    )
    assert (ours.result, ours.outcome, dict(ours.executions)) == (
        known.result,
        known.outcome,
        known.executions,
    )
    assert ours == told_by_runfox(known.document, known.inputs, known.execute)
    assert known.statuses in (None, ours.statuses)
    assert known.run_ids in (None, ours.run_ids)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_a_known_workflow_ends_alike_in_the_older_spelling(known: Known) -> None:
    """runfox 0.0.2 wrote `id` and `fn`, and one fn could serve many steps; 0.0.7 cannot read that."""
    renamed = [
        {"id": one["op"], "fn": one["op"], **{k: v for k, v in one.items() if k != "op"}}
        for one in known.steps
    ]

    older = told_by_us(known.document | {"steps": renamed}, known.inputs, known.execute)

    assert older == told_by_us(known.document, known.inputs, known.execute)
