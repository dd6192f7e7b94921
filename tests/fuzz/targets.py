"""Untrusted input, and how the code must handle it: with a result or a rejection, in time, without side
effects.

Each target is a strategy and a check. test_fuzz.py runs a few examples of each, scripts/fuzz as many as you
want.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from click.testing import CliRunner
from fakeredis import FakeRedis, FakeServer
from hypothesis import strategies as st
from redis.exceptions import ResponseError

from orchestrator.application.errors import ExpressionError, InvalidEvent, InvalidSpec, OrchestratorError
from orchestrator.application.expressions.evaluation import check, check_condition, evaluate
from orchestrator.application.expressions.json_logic import OPERATOR_TABLE
from orchestrator.application.expressions.jsonpath import BadPath, parse
from orchestrator.application.spec.cron import next_after, parse_cron
from orchestrator.application.spec.validation import check_spec, load_spec
from orchestrator.application.values.durations import parse_duration
from orchestrator.cli.main import main
from orchestrator.convert import convert
from orchestrator.invocation.executors import Executors
from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.event_codec import START_FIELDS, read_event
from orchestrator.redis_rq.job_codec import RUN_STEP, read_payload
from orchestrator.redis_rq.json_codec import dumps
from orchestrator.redis_rq.read_size import QUIET_COUNT
from orchestrator.worker.harness import Harness
from worlds.documents import Json
from worlds.redis_world import RedisWorld

MAX_S = 30.0
"""Long enough for a busy machine; code that hangs takes longer."""

FORBIDDEN = ("exec", "compile", "open", "os.", "subprocess.", "socket.", "pickle.", "ctypes.", "shutil.")
_audited: list[str] | None = None


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _audited is not None and event.startswith(FORBIDDEN):
        _audited.append(f"{event} {args!r:.200}")


sys.addaudithook(_audit)


@contextmanager
def no_side_effects() -> Iterator[None]:
    """The block must not compile code, open files, start processes or connect to anything."""
    global _audited
    _audited = []
    try:
        yield
        assert _audited == []
    finally:
        _audited = None


@contextmanager
def in_time() -> Iterator[None]:
    def end(*_: object) -> NoReturn:
        raise AssertionError(f"not within {MAX_S:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, MAX_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---- untrusted values

NASTY = [
    "",
    "null",
    "NaN",
    "1e999",
    "[]",
    "{}",
    '"\\ud800"',
    "-1",
    "0",
    "9" * 400,
    "\0",
    "\ufffd",
    "[" * 300 + "]" * 300,
    '{"a":' * 300 + "1" + "}" * 300,
    "__class__.__mro__",
    "{{ inputs.__class__ }}",
    "x" * 20_000,
    "../../etc/passwd",
    "a|b|c|d|e",
    "x#1",
    "2026-13-45T99:99:99Z",
    "true",
    "1-1",
]
texts = st.one_of(st.sampled_from(NASTY), st.text(max_size=40))
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts)
data = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
written = st.one_of(texts, data.map(lambda value: json.dumps(value)))

PATHS = [
    "input",
    "steps.a.output",
    "__class__",
    "a.b.0",
    "..",
    "ctx.now",
    "kv.x",
    "state",
    "item.__dict__",
    "0",
]
DATA: Json = {
    "input": {"a": [1, "x", None, {"b": True}], "__class__": "no", "n": 1e308, "t": "2026-01-01T00:00:00Z"},
    "steps": {"a": {"output": {"x": list(range(50)), "text": "ä" * 100}}},
    "ctx": {"now": "2026-01-01T00:00:00.000Z"},
    "kv": {"local": {"k": 1}, "flow": {}, "global": {}},
}


def _rule(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    operator = st.sampled_from([*OPERATOR_TABLE, "method", "log", "eval", "__class__", "$literal", "secret"])
    args = st.one_of(inner, st.lists(inner, max_size=4))
    return st.builds(lambda name, given: {name: given}, operator, args)


rules = st.recursive(
    st.one_of(scalars, st.sampled_from(PATHS).map(lambda path: {"var": path}), data),
    lambda inner: st.one_of(
        _rule(inner), st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=15,
)

STEP_KEYS = [
    "id",
    "op",
    "fn",
    "input",
    "depends_on",
    "branch",
    "retry",
    "timeout",
    "wait",
    "map",
    "child",
    "concurrency",
    "on_failure",
    "compensate",
    "heartbeat",
    "source",
    "queue",
    "priority",
    "tags",
    "set",
    "loop",
    "output",
    "outputs",
    "when",
    "if",
    "signal",
    "delay",
    "limits",
    "idempotency",
    "redact",
    "secrets",
]
SPEC_KEYS = [
    "name",
    "description",
    "inputs",
    "steps",
    "outputs",
    "limits",
    "schedule",
    "webhook",
    "concurrency",
    "state",
    "sources",
    "templates",
    "on_failure",
    "version",
    "timeout",
    "priority",
    "labels",
    "redact",
    "kv",
]
_values = st.one_of(rules, st.sampled_from(["a", "b", "5s", "{{ inputs.a }}", "complete", "all", "any"]))
_steps = st.lists(
    st.one_of(
        st.dictionaries(st.sampled_from(STEP_KEYS), _values, max_size=6).map(lambda one: {"op": "a", **one}),
        data,
    ),
    max_size=4,
)
specs = st.builds(
    lambda others, steps: {**others, "steps": steps},
    st.dictionaries(st.sampled_from(SPEC_KEYS), st.one_of(_values, data), max_size=4),
    _steps,
)
_TOKENS = [
    *(
        "steps:\n",
        "  - ",
        "op: a\n",
        "id: b",
        "\n",
        "    ",
        "&a ",
        "*a",
        "<<: ",
        "!!python/object:os.system ",
        "| ",
    ),
    *(
        "[",
        "]",
        "{",
        "}",
        ",",
        ": ",
        "- ",
        "'",
        '"',
        "#",
        "%",
        "@",
        "`",
        "\t",
        "\ufeff",
        "---\n",
        "...\n",
        "? ",
    ),
    *(
        "on: ",
        "1: ",
        "null",
        "~",
        ".inf",
        "0x1F",
        "1_000",
        "2026-01-01",
        "!!binary ",
        "!!set ",
        "\\",
        "{{ x }}",
    ),
]
documents = st.one_of(
    st.lists(st.sampled_from(_TOKENS), max_size=40).map("".join),
    specs.map(lambda one: json.dumps(one)),
    st.text(max_size=200),
    st.lists(st.sampled_from(_TOKENS), max_size=15).map(
        lambda tokens: "steps:\n  - op: a\n" + "".join(tokens)
    ),
)


# ---- pure targets


def read_a_document(text: str) -> None:
    with in_time(), suppress(InvalidSpec):
        load_spec(text)


def check_a_spec(spec: Any) -> None:
    with in_time(), suppress(InvalidSpec):
        loaded = check_spec(spec)
        assert check_spec(json.loads(dumps(loaded.document))).workflow_id == loaded.workflow_id


def evaluate_a_rule(rule: Any) -> None:
    """Evaluate an expression, whether it was checked before or not."""
    check(rule, "x"), check_condition(rule, "x")
    with in_time(), no_side_effects(), suppress(ExpressionError):
        dumps(evaluate(rule, DATA))


def follow_a_path(path: str) -> None:
    with in_time(), no_side_effects(), suppress(BadPath, ExpressionError):
        parse(path).find(DATA)


def read_a_cron(text: str) -> None:
    with in_time(), suppress(ValueError):
        parse_cron(text)
        assert next_after(text, "Europe/Berlin", 1_800_000_000_000) > 1_800_000_000_000


def read_a_duration(value: Any) -> None:
    with in_time(), suppress(ValueError):
        assert parse_duration(value) >= 0


def convert_a_document(text: str) -> None:
    for dialect in (None, "flowtoy", "flow8", "runfox"):
        with in_time(), suppress(OrchestratorError):
            dumps(convert(text, dialect).document)


def name_a_file(content: bytes) -> None:
    """A mistake of a user gives a defined exit code and no traceback."""
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file, in_time():
        Path(file.name).write_bytes(content)
        for command in (["validate"], ["graph"], ["convert"]):
            done = CliRunner().invoke(main, [*command, file.name])
            assert done.exit_code in (0, 1, 2, 6), (command, done.exit_code)
            assert done.exception is None or isinstance(done.exception, SystemExit), (command, done.exception)


def read_an_event(fields: Mapping[str, str]) -> None:
    for is_start in (True, False):
        with suppress(InvalidEvent):
            read_event(fields, is_start)


# ---- targets with a Redis


@contextmanager
def fake_world() -> Iterator[RedisWorld]:
    server = FakeServer()

    def connected() -> Client:
        return FakeRedis(server=server, protocol=2, decode_responses=True, encoding_errors="replace")

    world = RedisWorld(connected)
    try:
        yield world
    finally:
        world.close()


@contextmanager
def world_on(url: str) -> Iterator[RedisWorld]:
    world = RedisWorld(lambda: connect(url), quiet_count=QUIET_COUNT)
    world.client.flushall()
    try:
        yield world
    finally:
        world.close()


Worlds = Callable[[], Any]
GOOD: Json = {"steps": [{"op": "a"}, {"op": "b", "depends_on": ["a"]}]}
VICTIM: Json = {
    "name": "victim",
    "inputs": {"n": {"type": "integer", "default": 1}},
    "steps": [
        {"id": "first", "fn": "echo", "retry": 2, "timeout": "30s"},
        {"id": "each", "fn": "echo", "map": {"over": [1, 2], "as": "n"}, "depends_on": ["first"]},
        {"id": "go", "wait": {"signal": "go", "timeout": "1h"}, "depends_on": ["first"]},
        {"id": "last", "fn": "echo", "depends_on": ["each", "go"], "concurrency": {"key": "k", "limit": 1}},
    ],
}

FIELD_NAMES = sorted(
    START_FIELDS
    | {
        "type",
        "execution",
        "step",
        "run_id",
        "attempt",
        "token",
        "output",
        "error",
        "worker",
        "started_at",
        "executor",
        "name",
        "payload",
        "action",
        "reply",
        "reason",
        "by",
        "parent",
        "root",
        "depth",
        "child",
        "event",
    }
)
TYPES = [
    "result",
    "started",
    "lost",
    "declined",
    "available",
    "signal",
    "timeout",
    "deadline",
    "retry",
    "wake",
    "continue",
    "child",
    "control",
    "schedule",
    "slot",
    "nothing",
]
KNOWN = [
    "cancel",
    "pause",
    "rerun",
    "retry",
    "delete",
    "victim",
    "first",
    "each#0",
    "go",
    "1",
    "0",
    dumps(GOOD),
    "WEID",
]
fields = st.dictionaries(
    st.one_of(st.sampled_from(FIELD_NAMES), texts.filter(bool)),
    st.one_of(st.sampled_from(KNOWN), written),
    min_size=1,
    max_size=9,
)
events = st.builds(
    lambda kind, rest: rest if kind is None else {**rest, "type": kind},
    st.one_of(st.none(), st.sampled_from(TYPES)),
    fields,
)


def send_events(some: list[tuple[bool, dict[str, str]]], worlds: Worlds = fake_world) -> None:
    """Each event gets a reply or a dead letter, and the next valid one is handled."""
    with worlds() as world, in_time():
        one = world.coordinator()
        weid = world.begin(one, VICTIM, execution_id="victim")
        for is_start, sent in some:
            stream = world.keys.starts if is_start else world.keys.events_of(weid)
            world.send(stream, {name: weid if value == "WEID" else value for name, value in sent.items()})
        _still_serves(world, one)
        assert world.pending() == []


def _still_serves(world: RedisWorld, one: Any) -> None:
    for _ in range(5):
        one.run_once()
        world.work(most=20)
    good = world.begin(one, GOOD, execution_id="good-one")
    for _ in range(50):
        if world.status(good) == "complete":
            return
        world.work(most=20)
        one.run_once()
    raise AssertionError(f"the good one is {world.status(good)}")


OWN_KEYS = ("workflow", "history", "lines", "execution", "spec", "signals")
mutations = st.lists(
    st.one_of(
        st.tuples(st.just("field"), texts, written),
        st.tuples(st.just("known field"), st.integers(0, 40), written),
        st.tuples(st.just("part of a step"), st.integers(0, 40), data),
        st.tuples(st.just("without"), st.integers(0, 40), st.none()),
        st.tuples(st.just("another type"), st.sampled_from(OWN_KEYS), texts),
        st.tuples(st.just("history"), written, st.none()),
        st.tuples(
            st.just("timer"),
            texts,
            st.sampled_from(["deadline|WEID|first|x", "wake|WEID|go|", "schedule|x||"]),
        ),
        st.tuples(
            st.just("lease"), texts, st.sampled_from(["WEID|first|0|1|x", "|||||||", "WEID|first|y|z|x"])
        ),
        st.tuples(
            st.just("shared"),
            st.sampled_from(["index:status:in_progress", "ended", "timers", "leases"]),
            texts,
        ),
        st.tuples(
            st.just("hash"),
            st.sampled_from(["groups", "schedules", "scheduled", "sequences", "counters"]),
            written,
        ),
        st.tuples(st.just("spec"), st.sampled_from(["document", "executions"]), written),
        st.tuples(st.just("job"), st.sampled_from(["data", "sequence", "lease", "status"]), written),
        st.tuples(st.just("queue"), texts, st.none()),
        st.tuples(st.just("signal"), written, st.none()),
        st.tuples(st.just("concurrency"), texts, st.sampled_from(["held", "line"])),
    ),
    min_size=1,
    max_size=4,
)


def break_a_record(some: list[tuple[str, Any, Any]], worlds: Worlds = fake_world) -> None:
    """The coordinator continues, and so do the other executions."""
    with worlds() as world, in_time():
        one = world.coordinator()
        weid = world.begin(one, VICTIM, execution_id="victim", group="g")
        world.work(most=1)
        for what, first, second in some:
            with suppress(ResponseError):  # an earlier corruption changed its type
                _mutate(world, weid, what, first, second)
        world.age_timers(10**9)
        fresh = world.coordinator("two")  # which has no cached record
        world.send(world.keys.events_of(weid), {"type": "signal", "execution": "victim", "name": "go"})
        world.send(world.keys.events_of(weid), {"type": "continue", "execution": weid})
        for coordinator in (one, fresh):
            coordinator.run_once()
        world.killed("two")
        expected = world.start(GOOD, execution_id="expected")  # its signals may have arrived before it
        _still_serves(world, one)
        assert "ok" in world.answer(expected)


def _mutate(world: RedisWorld, weid: str, what: str, first: Any, second: Any) -> None:
    client: Any = world.client
    keys, prefix = world.keys, world.keys.prefix
    record = keys.workflow(weid)
    known = sorted(client.hgetall(record)) if client.type(record) == "hash" else []
    at = known[first % len(known)] if known and isinstance(first, int) else "status"
    match what:
        case "field":
            client.hset(record, first, second)
        case "known field":
            client.hset(record, at, second)
        case "part of a step":
            steps = [name for name in known if name.startswith(("step:", "item:"))] or ["step:first"]
            name = steps[first % len(steps)]
            step = json.loads(client.hget(record, name) or "{}")
            if isinstance(step, dict):
                part = sorted(step)[first % len(step)] if step else "status"
                client.hset(record, name, json.dumps({**step, part: second}))
        case "without":
            client.hdel(record, at)
        case "another type":
            owner = {"execution": "victim", "signals": "victim", "spec": weid.partition("#")[0]}.get(
                first, weid
            )
            client.delete(f"{prefix}:{first}:{owner}")
            client.rpush(f"{prefix}:{first}:{owner}", second)
        case "history":
            client.rpush(keys.history(weid), first)
        case "timer":
            client.zadd(keys.timers, {first or second.replace("WEID", weid): 1})
        case "lease":
            client.zadd(keys.leases, {first or second.replace("WEID", weid): 1})
        case "shared":
            client.zadd(f"{prefix}:{first}", {second: 1})
        case "hash":
            client.hset(f"{prefix}:{first}", "victim", second)
        case "spec":
            client.hset(keys.spec(weid.partition("#")[0]), first, second)
        case "job":
            for job_id in world.waiting():
                client.hset(keys.rq_job(job_id), first, second)
        case "queue":
            client.lpush(keys.rq_queue("orchestrator.default"), first)
        case "signal":
            client.rpush(keys.signals("expected"), first)
        case "concurrency":
            client.zadd(f"{prefix}:concurrency:{second}:k", {first: 1})


def _payload(changes: Mapping[str, Any]) -> Json:
    made: Json = {
        "execution": "x#1",
        "step": "a",
        "fn": "echo",
        "inputs": {"a": 1},
        "run_id": 0,
        "attempt": 1,
        "round": 0,
        "iteration": None,
        "key": "k",
        "token": "t-0",
        "timeout_s": None,
        "max_output_bytes": 1000,
        "events": "orchestrator:events:0",
        "leases": "orchestrator:leases",
    }
    return {name: value for name, value in {**made, **changes}.items() if value != "GONE"}


_PARTS = [*_payload({}), "heartbeat_s", "source", "secrets", "redact", "other"]
payloads = st.dictionaries(st.sampled_from(_PARTS), st.one_of(data, st.just("GONE")), max_size=3).map(
    _payload
)
jobs = st.one_of(
    st.builds(lambda payload: json.dumps([RUN_STEP, None, [payload], {}]).encode(), payloads),
    st.builds(lambda given: json.dumps([RUN_STEP, None, *given]).encode(), st.tuples(st.lists(data), data)),
    st.builds(lambda value: json.dumps(value).encode(), data),
    st.binary(max_size=60),
)


def run_a_job(job: bytes) -> None:
    """Every job that is accepted as a step job runs to an end."""
    payload = read_payload(job, "w#x|first|0|1|t", job_id="t")
    if payload is None:
        return
    with fake_world() as world, in_time():
        with suppress(ResponseError):
            member = "|".join(
                str(payload[part]) for part in ("execution", "step", "run_id", "attempt", "token")
            )
            world.client.zadd(payload["leases"], {member: 1})
        harness = Harness(
            world.client, Executors(mapping={"echo": lambda inputs: inputs}), give_up_after_s=0.1
        )
        assert harness.run(payload) in (True, False)


@dataclass(frozen=True)
class Target:
    strategy: st.SearchStrategy[Any]
    check: Callable[..., None]
    examples: int
    has_redis: bool = False


TARGETS = {
    "documents": Target(documents, read_a_document, 80),
    "specs": Target(specs, check_a_spec, 80),
    "expressions": Target(rules, evaluate_a_rule, 200),
    "paths": Target(st.one_of(texts, st.text("$.[]*'\"?(@&=<>!:0ab ", max_size=30)), follow_a_path, 200),
    "cron": Target(st.one_of(texts, st.text("0123456789*/-,LW#?@ janmo", max_size=25)), read_a_cron, 150),
    "durations": Target(scalars, read_a_duration, 100),
    "converters": Target(documents, convert_a_document, 30),
    "files": Target(st.one_of(st.binary(max_size=100), documents.map(str.encode)), name_a_file, 10),
    "fields": Target(events, read_an_event, 300),
    "events": Target(st.lists(st.tuples(st.booleans(), events), max_size=4), send_events, 20, True),
    "records": Target(mutations, break_a_record, 24, True),
    "jobs": Target(jobs, run_a_job, 50),
}
