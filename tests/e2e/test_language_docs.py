"""The reference of the language: its examples are loaded, run or refused, and it leaves nothing out."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
import yaml
from redis import Redis, RedisError

from orchestrator import Backend, InvalidSpec, StepStatus, Workflow, WorkflowStatus, load_spec
from orchestrator.application.errors import Unavailable
from orchestrator.application.expressions.evaluation import OPERATORS
from orchestrator.application.records.events import Control, ControlEvent, SignalEvent, StartEvent
from orchestrator.application.records.status import STEP_TRANSITIONS, WORKFLOW_TRANSITIONS
from orchestrator.application.spec.document import read_document
from orchestrator.application.spec.field_types import PLAIN_ACTIONS
from orchestrator.application.spec.step_models import SpecModel, WorkflowModel
from orchestrator.application.spec.validation import CODES, WARNINGS
from orchestrator.backend.status_changes import StatusChange
from orchestrator.client import Client
from orchestrator.invocation.executors import public_functions
from orchestrator.invocation.source_config import ENV_ALLOWLIST_VARIABLE
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.event_codec import START_FIELDS, read_event
from orchestrator.redis_rq.keys import Keys
from orchestrator.testing import WorkflowTest
from orchestrator_executors import invoices
from processes import PatientClient, start_module, wait_until
from servers.redis_server import require_redis_server
from worlds.redis_world import RedisWorld, running

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "language.md").read_text()
INVOICE = ROOT / "docs" / "examples" / "invoice.yaml"


class Block(NamedTuple):
    language: str
    text: str
    line: int


class Example(NamedTuple):
    document: str
    after: Block | None


def _blocks() -> list[Block]:
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [Block(one[1], one[2], PAGE.count("\n", 0, one.start()) + 1) for one in found]


BLOCKS = _blocks()
EXAMPLES = {
    block.line: Example(block.text, after if after and after.language in ("json", "text") else None)
    for block, after in zip(BLOCKS, [*BLOCKS[1:], None], strict=True)
    if block.language == "yaml"
}
EXECUTORS, SENDING = (block.text for block in BLOCKS if block.language == "python")
START, COMMAND, CONTROLS = (block.text for block in BLOCKS if block.language == "sh")


def _executors() -> dict[str, Callable[[dict[str, Any]], Any]]:
    names: dict[str, Any] = {}
    exec(compile(EXECUTORS, "language.md", "exec"), names)
    return {name: value for name, value in names.items() if callable(value)}


def _of(kind: str | None) -> list[int]:
    return [line for line, one in EXAMPLES.items() if (one.after and one.after.language) == kind]


ON_THE_WAY = {"held", "after", "controls", "killed"}
"""What is said of an example that is rehearsed, and not simply run to its end."""


def _shown(line: int) -> dict[str, Any]:
    after = EXAMPLES[line].after
    assert after is not None
    shown: dict[str, Any] = json.loads(after.text)
    return shown


# ---- the examples


def test_no_block_is_left_untreated() -> None:
    treated = [line for kind in (None, "json", "text") for line in _of(kind)]
    treated += [one.after.line for one in EXAMPLES.values() if one.after]
    others = (EXECUTORS, SENDING, START, COMMAND, CONTROLS)
    treated += [one.line for one in BLOCKS if one.text in others]

    assert sorted(treated) == [block.line for block in BLOCKS]
    assert PAGE.count("\n```") == 2 * len(BLOCKS)
    assert not _of(None), "each example shows what it comes to"


class QuickClock:
    """A minute passes with each look, so that no test waits; a millisecond while a job is running, so that no
    step exceeds its timeout on a busy machine."""

    def __init__(self) -> None:
        self._now_ms, self._running = 1_800_000_000_000, set[tuple[str, str]]()

    def __call__(self) -> int:
        self._now_ms += 1 if self._running else 60_000
        return self._now_ms

    def note(self, change: StatusChange) -> None:
        unit = (change.workflow_execution_id, change.step_id)
        if change.after == "in_progress" and change._record.loaded.unit_spec(change.step_id).kind == "task":
            self._running.add(unit)
        else:
            self._running.discard(unit)


@pytest.mark.parametrize("line", [line for line in _of("json") if ON_THE_WAY.isdisjoint(_shown(line))])
def test_an_example_comes_to_what_the_page_says(line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_ALLOWLIST_VARIABLE, "NOT_SET_*")
    document, shown = EXAMPLES[line].document, _shown(line)
    clock = QuickClock()
    backend = Backend(_executors(), poll_interval=0.001, clock=clock, on_status=clock.note)
    group = shown.pop("group", None)
    workflow = Workflow(backend.create(document, shown.pop("inputs", None), group=group), backend)
    for name, payload in shown.pop("signals", []):
        workflow.signal(name, payload)

    assert load_spec(document).warnings == ()
    workflow.run()

    found = {
        "status": workflow.status.value,
        "outcome": workflow.outcome,
        "error": _without_traceback(workflow.error),
        "state": workflow.state,
        "steps": {step_id: status.value for step_id, status in workflow.step_statuses.items()},
        "items": {unit: item.status.value for unit, item in backend.load(workflow.id).items.items()},
    }
    assert shown
    assert {key: found[key] for key in shown} == shown


@pytest.mark.parametrize("line", [line for line in _of("json") if ON_THE_WAY & _shown(line).keys()])
def test_an_example_on_its_way_stands_where_the_page_says(line: int) -> None:
    shown = _shown(line)
    assert load_spec(EXAMPLES[line].document).warnings == ()
    play = WorkflowTest(yaml.safe_load(EXAMPLES[line].document), executors=_executors())
    for step_id in shown.pop("held", []):
        play.hold(step_id)
    for step_id, times in shown.pop("killed", {}).items():
        play.kill("worker.start", step_id, times)
    play.run(skip_waits="after" not in shown).skip(shown.pop("after", "0s"))
    for action, *named in shown.pop("controls", []):
        getattr(play, action)(*named)
    play.run()
    play.check_kills()

    found = {
        "status": play.status.value,
        "error": _without_traceback(play.error),
        "steps": {step_id: status.value for step_id, status in play.statuses.items()},
        "items": {unit: item.status.value for unit, item in play.record.items.items()},
    }
    assert {key: found[key] for key in shown} == shown


def _without_traceback(error: dict[str, Any] | None) -> dict[str, Any] | None:
    return error and {key: value for key, value in error.items() if key != "traceback"}


@pytest.mark.parametrize("line", _of("text"))
def test_a_document_that_is_wrong_has_the_problems_of_the_page(line: int) -> None:
    document, after = EXAMPLES[line]
    assert after is not None

    try:
        found = [f"{warning} (warning)" for warning in load_spec(document).warnings]
    except InvalidSpec as refusal:
        found = [str(problem) for problem in refusal.problems]

    assert found == after.text.splitlines()


def test_both_ways_to_send_a_signal_put_the_same_event_into_the_stream(
    redis_client: Redis, redis_url: str
) -> None:
    program, command, stream, entry, *fields = shlex.split(COMMAND)
    assert (program, command, stream, entry) == ("redis-cli", "XADD", Keys().events(0), "*")
    sent = read_event(dict(zip(fields[::2], fields[1::2], strict=True)), is_start=False)
    assert sent == SignalEvent("inv-1", "manager", {"by": "ada"})

    assert "redis://localhost:6379/0" in SENDING
    world = RedisWorld(lambda: connect(redis_url))
    with running(world.coordinator("one", world.connect(), block_ms=20, trim_every_s=1e9)):  # it is answered
        exec(compile(SENDING.replace("redis://localhost:6379/0", redis_url), "language.md", "exec"), {})
    world.close()

    entries: Any = redis_client.xrange(Keys().events_of("inv-1"))
    [(_, raw)] = entries
    assert read_event({key.decode(): value.decode() for key, value in raw.items()}, is_start=False) == sent


def test_the_start_of_the_page_is_one_that_a_coordinator_understands() -> None:
    program, command, stream, entry, *fields = shlex.split(START)
    assert (program, command, stream, entry) == ("redis-cli", "XADD", Keys().starts, "*")

    sent = read_event(dict(zip(fields[::2], fields[1::2], strict=True)), is_start=True)

    inputs = {"document": "small.txt"}
    assert sent == StartEvent("invoice", inputs=inputs, group="march", idempotency_root="scan-17")


def test_the_controls_of_the_page_are_events_that_a_coordinator_understands() -> None:
    sent = []
    for line in CONTROLS.splitlines():
        program, command, stream, entry, *fields = shlex.split(line)
        assert (program, command, stream, entry) == ("redis-cli", "XADD", Keys().events(0), "*")
        sent.append(read_event(dict(zip(fields[::2], fields[1::2], strict=True)), is_start=False))

    assert sent == [
        ControlEvent("inv-1", "cancel", reason="a duplicate", by="ada"),
        ControlEvent("inv-1", "hold", step_id="approval"),
    ]


# ---- what must be there


def _models(model: type[SpecModel], seen: set[type[SpecModel]]) -> Iterator[str]:
    """Every key that can be written, in a model and in those below it."""
    if model in seen:
        return
    seen.add(model)
    for name, field in model.model_fields.items():
        key = field.alias or name
        yield key
        for below in _written_in(field.annotation):
            yield from _models(below, seen)


def _written_in(annotation: Any) -> Iterator[type[SpecModel]]:
    if isinstance(annotation, type) and issubclass(annotation, SpecModel):
        yield annotation
    for part in get_args(annotation):
        yield from _written_in(part)


def _failure_kinds() -> set[str]:
    sources = (path.read_text() for path in (ROOT / "orchestrator").rglob("*.py"))
    return {kind for text in sources for kind in re.findall(r'\b(?:make_)?failure\(\s*"(\w+)"', text)}


WORDS = {
    "keys": sorted(set(_models(WorkflowModel, set()))),
    "states of a step": sorted(status.value for status in StepStatus),
    "kinds of failure": sorted(_failure_kinds()),
    "codes": sorted(CODES),
    "warnings": sorted(WARNINGS),
    "operators": sorted(OPERATORS),
    "actions": sorted(PLAIN_ACTIONS),
    "controls": sorted(get_args(Control)),
    "fields of a start": sorted(START_FIELDS),
}


def test_the_lists_of_what_must_be_there_are_not_empty() -> None:
    assert all(len(words) > 2 for what, words in WORDS.items())
    assert {"max_parallel", "as", "on_timeout", "jitter_fraction", "result_expr", "cases"} <= set(
        WORDS["keys"]
    )
    assert {"exception", "timeout", "lost", "signal_timeout"} <= set(WORDS["kinds of failure"])


@pytest.mark.parametrize("what", WORDS)
def test_the_page_names_all_of_them(what: str) -> None:
    named = set(re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", PAGE, flags=re.DOTALL | re.MULTILINE)))
    inside = {word for text in named for word in re.findall(r"[\w.]+", text)}

    assert [word for word in WORDS[what] if word not in named | inside] == []


def _keys_of(model: type[SpecModel], seen: set[type[SpecModel]]) -> Iterator[tuple[str, str]]:
    """Every key, with the part of a document that it is a key of."""
    if model in seen:
        return
    seen.add(model)
    for name, field in model.model_fields.items():
        yield model.__name__, field.alias or name
        for below in _written_in(field.annotation):
            yield from _keys_of(below, seen)


def _keys_in(written: Any) -> Iterator[tuple[str, str]]:
    """The same of what somebody wrote."""
    if isinstance(written, SpecModel):
        for name in written.model_fields_set & type(written).model_fields.keys():
            yield type(written).__name__, type(written).model_fields[name].alias or name
            yield from _keys_in(getattr(written, name))
    elif isinstance(written, dict | list | tuple):
        for below in written.values() if isinstance(written, dict) else written:
            yield from _keys_in(below)


def _operators_in(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        yield from data if len(data) == 1 else ()
    for below in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _operators_in(below)


PLAYED = [read_document(EXAMPLES[line].document).data for line in _of("json")]
SHOWN = "".join(EXAMPLES[line].after.text for line in _of("json"))  # type: ignore[union-attr]
TOLD = "".join(EXAMPLES[line].after.text for line in _of("text"))  # type: ignore[union-attr]
DEFECTS = {"internal", "stalled"}
"""Kinds of failure that no document brings about."""


def test_every_key_is_in_an_example_that_is_played() -> None:
    played = {key for data in PLAYED for key in _keys_in(WorkflowModel.model_validate(data))}

    assert set(_keys_of(WorkflowModel, set())) - played == set()


def test_every_operator_is_in_an_example_that_is_played() -> None:
    assert set(OPERATORS) - {operator for data in PLAYED for operator in _operators_in(data)} == set()


def test_every_state_kind_of_failure_and_code_is_shown_by_an_example() -> None:
    words = {*StepStatus, *WorkflowStatus, *WORDS["kinds of failure"]} - DEFECTS

    assert [word for word in sorted(words) if f'"{word}"' not in SHOWN] == []
    assert [code for code in sorted({*CODES, *WARNINGS}) if f"[{code}]" not in TOLD] == []


def _moves_below(titles: str) -> dict[str, frozenset[str]]:
    table = PAGE.partition(f"{titles}\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [[re.findall(r"`(\w+)`", cell) for cell in row.split("|")[1:3]] for row in table.splitlines()]
    return {before: frozenset(after) for [before], after in rows}


def test_the_page_shows_every_move_of_a_step_and_of_a_workflow() -> None:
    assert _moves_below("| from | to |") == STEP_TRANSITIONS
    assert _moves_below("| a workflow that is | may become |") == WORKFLOW_TRANSITIONS


def test_every_link_of_the_page_leads_somewhere() -> None:
    titles = re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    anchors = {"#" + re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert target in anchors or (ROOT / "docs" / target).exists(), target


# ---- the larger example


def _invoice(document: str) -> tuple[Workflow, list[str]]:
    """The invoice in memory, with the manager's word said before anybody asks for it."""
    seconds = count(1_800_000_000_000, 1_000)
    functions = public_functions(invoices)
    backend = Backend(functions, poll_interval=0.001, clock=lambda: next(seconds))
    workflow = Workflow.from_yaml(INVOICE.read_text(), backend, inputs={"document": document})
    workflow.signal("manager", {"by": "ada"})
    workflow.run()
    return workflow, [step for step, status in workflow.step_statuses.items() if status != "complete"]


def test_the_invoice_that_is_small_needs_no_manager() -> None:
    workflow, others = _invoice("small.txt")

    assert workflow.status is WorkflowStatus.COMPLETE
    assert workflow.outcome == {
        "amount": 37.5,
        "by": "auto",
        "number": "inv-37.5",
        "prices": [25.0, 12.5],
        "unpriced": 0,
        "rounds": 2,
        "archived": {"shelf": "shelf-6", "text": "inv-37.5, received by grace"},
    }
    assert others == ["manual_entry", "approval", "settle", "notify"]


def test_the_invoice_that_nobody_can_read_is_halted() -> None:
    workflow, _ = _invoice("coffee.txt")

    assert workflow.status is WorkflowStatus.HALTED
    assert workflow.outcome == {"status": "rejected", "reason": "unreadable"}


def test_the_invoice_that_is_large_waits_for_its_manager_in_the_system_that_run_starts(
    tmp_path: Path,
) -> None:
    require_redis_server()
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ORCHESTRATOR_")}
    command = [
        "orchestrator",
        "run",
        str(INVOICE),
        "--executors",
        "orchestrator_executors.invoices",
        "--json",
    ]
    with tempfile.TemporaryDirectory(prefix="t") as temporary:
        process = start_module(
            [*command, "--inputs", '{"document": "large.txt"}'],
            ours | {"PYTHONPATH": str(ROOT), "TMPDIR": temporary},
            tmp_path,
            subprocess.PIPE,
            subprocess.DEVNULL,
        )
        try:
            client, execution_id = _waiting_for_approval(process, Path(temporary))
            client.signal(execution_id, "manager", {"by": "ada"})
            printed, _ = process.communicate(timeout=300)
        finally:
            process.kill()
            process.communicate()

    assert process.returncode == 0
    assert json.loads(printed)["outcome"] == {
        "amount": 594.0,
        "by": "ada",
        "number": "inv-594",
        "prices": [594.0],
        "unpriced": 1,
        "rounds": 2,
        "archived": {"shelf": "shelf-5", "text": "inv-594, received by grace"},
    }


def _waiting_for_approval(process: subprocess.Popen[str], temporary: Path) -> tuple[Client, str]:
    """A client of the embedded system, and its only execution, once the step `approval` waits."""
    found: list[tuple[Client, str]] = []

    def is_waiting() -> bool:
        assert process.poll() is None, "it ended without asking"
        for path in temporary.glob("*/redis.sock"):
            with suppress(RedisError, Unavailable), Redis.from_url(f"unix://{path}") as redis:
                keys: Any = redis.keys("orchestrator:execution:*")
                client = PatientClient(f"unix://{path}")
                ids = [key.decode().removeprefix("orchestrator:execution:") for key in keys]
                found.extend((client, one) for one in ids if _approval(client, one) is StepStatus.WAITING)
        return bool(found)

    wait_until(is_waiting)
    return found[0]


def _approval(client: Client, execution_id: str) -> StepStatus:
    return client.record(execution_id).steps["approval"].status
