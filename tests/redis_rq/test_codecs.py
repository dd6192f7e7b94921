"""What is written comes back as it was: events as fields of a stream, records as fields of a hash."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.events import (
    AvailableEvent,
    ContinueEvent,
    DeclinedEvent,
    LostEvent,
    ResultEvent,
    StartedEvent,
    StartEvent,
)
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.validation import check_spec
from orchestrator.application.values.payload_refs import MAX_INPUT_BYTES
from orchestrator.redis_rq.event_codec import MAX_EVENT_BYTES, MAX_SIGNAL_BYTES, event_fields, read_event
from orchestrator.redis_rq.json_codec import dumps, loads
from orchestrator.redis_rq.keys import Keys, lease_member, timer_member
from orchestrator.redis_rq.record_codec import changed_fields, created_fields, read_record
from worlds.documents import document, step

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = texts.filter(bool)
numbers = st.integers(0, 10**15 - 1)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, json_values, max_size=3)
errors = objects.map(lambda found: {**found, "kind": "exception"})
times = st.none() | st.just("2026-01-01T00:00:00.000Z")


# ---- JSON


@given(json_values)
def test_json_comes_back_as_it_was(value: Any) -> None:
    assert loads(dumps(value)) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), {"n": [float("nan")]}])
def test_what_is_no_json_is_never_written(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON"):
        dumps(value)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"n": -Infinity}'])
def test_what_is_no_json_is_never_read(text: str) -> None:
    with pytest.raises(ValueError, match="is not JSON"):
        loads(text)


@pytest.mark.parametrize("text", ["1e400", "-1e400", "[1e999]", '"\\ud800"', '{"\\udfff": 1}'])
def test_what_cannot_be_written_is_never_read(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        loads(text)


# ---- events


@given(
    st.builds(
        ResultEvent,
        names,
        names,
        output=json_values,
        error=st.none(),
        run_id=numbers,
        attempt=numbers,
        token=names,
        worker=st.none() | texts,
        started_at=times,
    )
    | st.builds(ResultEvent, names, names, st.none(), errors, run_id=numbers, attempt=numbers, token=names)
    | st.builds(StartedEvent, names, names, numbers, numbers, names, st.none() | texts, times)
    | st.builds(LostEvent, names, names, numbers, numbers, names, texts)
    | st.builds(DeclinedEvent, names, names, numbers, numbers, names, names, st.none() | texts)
    | st.builds(AvailableEvent, names, names, names)
    | st.builds(ContinueEvent, names, st.just("") | names)
)
def test_an_event_comes_back_as_it_was(
    event: ResultEvent | StartedEvent | LostEvent | DeclinedEvent | AvailableEvent | ContinueEvent,
) -> None:
    assert read_event(event_fields(event), is_start=False) == event


def understood_or_explained(fields: dict[str, str], is_start: bool) -> None:
    with suppress(InvalidEvent):  # and nothing else
        event = read_event(fields, is_start)
        assert isinstance(event, StartEvent) == is_start


@given(st.dictionaries(texts, texts, max_size=6), st.booleans())
def test_fields_of_any_kind_are_an_event_or_a_reason(fields: dict[str, str], is_start: bool) -> None:
    understood_or_explained(fields, is_start)


KNOWN = [
    "type",
    "execution",
    "step",
    "run_id",
    "attempt",
    "token",
    "output",
    "error",
    "reason",
    "executor",
    "spec",
    "inputs",
]
nearly = st.sampled_from(
    [
        "result",
        "started",
        "lost",
        "declined",
        "available",
        "deadline",
        "continue",
        "1",
        "-1",
        "{}",
        "[",
        "null",
    ]
)


@given(st.dictionaries(st.sampled_from(KNOWN), nearly | texts), st.booleans())
def test_fields_that_nearly_fit_are_an_event_or_a_reason(fields: dict[str, str], is_start: bool) -> None:
    understood_or_explained(fields, is_start)


def test_a_start_is_understood() -> None:
    fields = {"workflow": "order", "inputs": '{"n": 1}', "execution_id": "order-42"}
    assert read_event(fields, is_start=True) == StartEvent("order", None, {"n": 1}, "order-42")
    assert read_event({"spec": "steps: []"}, is_start=True) == StartEvent(None, "steps: []", {}, None)


@pytest.mark.parametrize("execution_id", ["a", "A-b_c.d:9", "x" * 256])
def test_an_execution_id_may_be_chosen(execution_id: str) -> None:
    found = read_event({"workflow": "w", "execution_id": execution_id}, is_start=True)
    assert isinstance(found, StartEvent)
    assert found.execution_id == execution_id


@pytest.mark.parametrize("execution_id", ["", " ", "a b", "a#b", "a|b", "ä", "a\n", "x" * 257, "a/b", "*"])
def test_an_execution_id_that_could_be_mistaken_is_refused(execution_id: str) -> None:
    with pytest.raises(InvalidEvent, match="execution_id"):
        read_event({"workflow": "w", "execution_id": execution_id}, is_start=True)


def test_the_largest_inputs_pass_and_larger_ones_do_not() -> None:
    largest = '{"n":"' + "x" * (MAX_INPUT_BYTES - 8) + '"}'
    assert len(largest) == MAX_INPUT_BYTES
    read_event({"workflow": "w", "inputs": largest}, is_start=True)
    with pytest.raises(InvalidEvent, match="1,048,577"):
        read_event({"workflow": "w", "inputs": largest + " "}, is_start=True)


def test_the_largest_event_passes_and_a_larger_one_does_not() -> None:
    fields = {"type": "continue", "execution": "x", "output": ""}
    room = MAX_EVENT_BYTES - sum(len(name) + len(value) for name, value in fields.items())
    read_event({**fields, "output": "x" * room}, is_start=False)
    with pytest.raises(InvalidEvent, match="by reference"):
        read_event({**fields, "output": "x" * (room + 1)}, is_start=False)


WHOLE = {
    "result": "execution step run_id attempt token worker started_at",
    "lost": "execution step run_id attempt token reason",
    "started": "execution step run_id attempt token worker started_at",
    "signal": "execution name",
    "control": "execution step reason by parent",
    "slot": "execution step token",
    "wake": "execution step token",
    "child": "execution step run_id attempt token root depth",
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in WHOLE.items() for name in names.split()]
)
def test_no_name_in_an_event_is_longer_than_it_may_be(kind: str, name: str) -> None:
    fields = dict.fromkeys(WHOLE[kind].split(), "1") | {"type": kind}
    fields |= {"action": "cancel"} if kind == "control" else {}
    with pytest.raises(InvalidEvent, match=f"'{name}' has 1,001 characters; at most 1,000 are accepted"):
        read_event({**fields, name: "x" * 1_001}, is_start=False)


@pytest.mark.parametrize("name", ["workflow", "schedule"])
def test_no_name_in_a_start_is_either(name: str) -> None:
    with pytest.raises(InvalidEvent, match=f"'{name}' has 1,001 characters"):
        read_event({"workflow": "x", name: "x" * 1_001}, is_start=True)


def test_the_payload_of_a_signal_has_the_size_of_inputs_at_the_most() -> None:
    fields = {"type": "signal", "execution": "x", "name": "go"}
    read_event({**fields, "payload": f'"{"x" * (MAX_SIGNAL_BYTES - 2)}"'}, is_start=False)
    with pytest.raises(InvalidEvent, match="payload has 1,048,577 characters"):
        read_event({**fields, "payload": f'"{"x" * (MAX_SIGNAL_BYTES - 1)}"'}, is_start=False)


# ---- records

LOADED = check_spec(document(step("a"), step("b", after="a"), name="two"))
steps = st.builds(
    StepRecord,
    st.sampled_from(StepStatus),
    run_id=numbers,
    attempt=numbers,
    round=numbers,
    dispatches=numbers,
    lost=numbers,
    token=st.none() | texts,
    output=json_values,
    error=st.none() | objects,
    reason=st.none() | texts,
    worker=st.none() | texts,
    dispatched_at=times,
    started_at=times,
    ended_at=times,
    deadline_ms=st.none() | numbers,
)
records = st.builds(
    WorkflowRecord,
    st.just(LOADED),
    st.just("x1"),
    objects,
    st.just("2026-01-01T00:00:00.000Z"),
    status=st.sampled_from(WorkflowStatus),
    state=objects,
    steps=st.fixed_dictionaries({"a": steps, "b": steps}),
    outcome=json_values,
    error=st.none() | objects,
    ended_at=times,
    start_event=st.none() | names,
    version=st.just("7-abcd"),
)


def known(record: WorkflowRecord) -> dict[str, Any]:
    return {name: value for name, value in asdict(record).items() if name not in ("loaded", "size")}


@given(records)
def test_a_record_comes_back_as_it_was(record: WorkflowRecord) -> None:
    stored = {**created_fields(record), "version": record.version}
    assert all(isinstance(value, str) for value in stored.values())
    assert stored["schema"] == "1"
    assert known(read_record(stored, LOADED)) == known(record)


@given(records, steps, objects, json_values)
def test_what_a_commit_writes_upon_a_record_is_what_it_becomes(
    record: WorkflowRecord, after: StepRecord, state: dict[str, Any], outcome: Any
) -> None:
    stored = {**created_fields(record), "version": record.version}
    changes = Changes(steps={"a": after}, state=state)
    changes.fields.update(
        status=WorkflowStatus.COMPLETE, outcome=outcome, ended_at="2026-01-02T00:00:00.000Z"
    )

    stored.update(changed_fields(changes))
    record.apply(changes)

    found = known(read_record(stored, LOADED))
    expected = known(record)
    found.pop("readiness")
    expected.pop("readiness")
    assert found == expected


def test_unknown_fields_of_a_record_are_ignored() -> None:
    record = WorkflowRecord(LOADED, "x1", {}, created_at="2026-01-01T00:00:00.000Z", version="1-a")
    stored = {**created_fields(record), "version": "1-a", "from_a_newer_release": "?", "step:z": "rubbish"}
    assert known(read_record(stored, LOADED)) == known(record)


def test_a_step_with_unknown_fields_can_be_read() -> None:
    found = StepRecord.from_dict({"status": "ready", "run_id": 3, "from_a_newer_release": 1})
    assert found == StepRecord(run_id=3, unknown={"from_a_newer_release": 1})
    assert found.as_dict()["from_a_newer_release"] == 1, "and is written again with them"


# ---- keys


@given(names.filter(lambda name: "|" not in name), numbers)
def test_a_member_of_the_lease_set_can_be_taken_apart(name: str, number: int) -> None:
    member = lease_member("w#x", name, number, 1, "t-0")
    assert member.split("|") == ["w#x", name, str(number), "1", "t-0"]
    assert timer_member("deadline", "w#x", name, "t-0").split("|") == ["deadline", "w#x", name, "t-0"]


@given(names)
def test_every_execution_has_one_stream_of_those_there_are(workflow_execution_id: str) -> None:
    keys = Keys("p", 3)
    assert keys.events_of(workflow_execution_id) in {"p:events:0", "p:events:1", "p:events:2"}
    assert keys.events_of(workflow_execution_id) == Keys("p", 3).events_of(workflow_execution_id)


# ---- the webhook of a start


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (None, None),
        ("https://example.org/{x}", "https://example.org/{x}"),
        ('{"url": "https://example.org"}', {"url": "https://example.org"}),
        (' {"url": "https://example.org", "on": []}', {"url": "https://example.org", "on": []}),
        ("nonsense is checked later", "nonsense is checked later"),
    ],
)
def test_a_start_may_name_a_webhook(text: str | None, read: Any) -> None:
    fields = {"workflow": "w", **({} if text is None else {"webhook": text})}

    assert read_event(fields, is_start=True) == StartEvent("w", webhook=read)


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "webhook is not JSON"), ("x" * 20_000, "webhook has 20,000 characters; at most 16,384")],
)
def test_a_webhook_that_cannot_be_read_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidEvent, match=why):
        read_event({"workflow": "w", "webhook": text}, is_start=True)


@pytest.mark.parametrize("text", ["", "nonsense", f"00-{'0' * 32}-00f067aa0ba902b7-01"])
def test_a_start_with_a_wrong_traceparent_is_rejected(text: str) -> None:
    with pytest.raises(InvalidEvent, match=r"traceparent .* must be a traceparent of W3C"):
        read_event({"workflow": "w", "traceparent": text}, is_start=True)
