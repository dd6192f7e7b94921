"""Deltas: folded, they are the record as people may see it, after every commit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.application.records import delta as deltas
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.delta import MAX_SECRETS, DeltaMark, build_delta, fold
from orchestrator.application.records.events import Parent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_parts import visible_fields
from orchestrator.application.records.record_view import make_record_view
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.records.visible_fields import MAX_VALUE_BYTES
from orchestrator.application.redaction.by_key import REDACTED
from worlds.documents import Json, document, step, when
from worlds.engine_checks import compact_json
from worlds.engine_world import EngineWorld, world_of
from worlds.records import NOW, new_record

SECRET = "open-sesame"
IS_FIRST_RUN = {"==": [{"var": "ctx.step.run_id"}, 0]}


@pytest.fixture(autouse=True)
def with_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the deltas of every commit."""
    monkeypatch.setattr(EngineWorld, "keeps_deltas", True)


class Commits:
    """A record and its deltas, commit by commit."""

    def __init__(self, record: WorkflowRecord) -> None:
        self.record, self.deltas, self.number = record, list[Json](), 0

    def commit(self, has_delta: bool = True, **changes: Any) -> Json:
        self.number += 1
        made, version = Changes(**changes), f"{self.number}-n"
        if has_delta:
            delta = build_delta(self.record, made, version, compact_json)
            delta.note_in(self.record)
            if delta.text:
                self.deltas.append(json.loads(delta.text))
        self.record.version = version
        self.record.apply(made)
        return self.deltas[-1] if self.deltas else {}

    @property
    def shown(self) -> Json:
        fields = visible_fields(self.record, compact_json)
        return {name: json.loads(text) for name, text in fields.items()}

    @property
    def mark(self) -> DeltaMark:
        return DeltaMark.parse(self.record.delta)


@pytest.fixture
def commits() -> Commits:
    one = new_record(document(step("a"), step("b"), redact=["iban"]), {"n": 1, "user": "ada"})
    return Commits(one)


# ---- the law

names = st.sampled_from(["a", "b", "password", "iban", "x token", SECRET])
leaves = st.none() | st.integers(-3, 3) | st.sampled_from(["ab", SECRET, f"it is {SECRET}", "other-secret"])
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2)
)
units = st.builds(
    StepRecord,
    status=st.sampled_from([StepStatus.COMPLETE, StepStatus.IN_PROGRESS]),
    token=st.sampled_from([None, "abcdefghijkl.mnop", "n-1"]),
    output=values,
    error=st.none() | st.dictionaries(names, values, max_size=2),
    reason=st.sampled_from([None, f"said {SECRET}"]),
    unknown=st.none() | st.just({"later": {"password": "four"}}),
)
changes = st.fixed_dictionaries(
    {},
    optional={
        "steps": st.dictionaries(st.sampled_from(["a", "b"]), units, max_size=2),
        "items": st.dictionaries(st.sampled_from(["a#0", "a#1", "b#undo"]), st.none() | units, max_size=2),
        "state": st.dictionaries(names, values, max_size=3),
        "dropped_state": st.just({"c"}) | st.just({"b2"}),
        "fields": st.dictionaries(
            st.sampled_from(["outcome", "error", "signals", "paused"]), values, max_size=2
        ),
    },
)


@settings(max_examples=150)
@given(st.lists(st.tuples(changes, st.sampled_from([True, True, True, False]), st.booleans()), max_size=6))
def test_the_deltas_so_far_are_the_record_as_it_is_shown(made: list[tuple[Json, bool, bool]]) -> None:
    one = Commits(new_record(document(step("a"), step("b"), redact=["iban"]), {"said": SECRET}))
    for change, has_delta, is_cold in made:
        if is_cold:
            one.record.visible = None  # another process has loaded it
        one.commit(has_delta, **change)
        if has_delta:
            assert fold(one.deltas) == one.shown


def test_fields_are_shown_as_show_shows_them(commits: Commits) -> None:
    error = {"kind": "exception", "message": f"no {SECRET}"}
    commits.commit(
        steps={"a": StepRecord(StepStatus.FAILED, error=error, output={"iban": "DE001234"}, reason=SECRET)},
        state={"token": SECRET, "said": [f"<{SECRET}>", "DE001234"]},
    )
    view = make_record_view(commits.record)

    shown = fold(commits.deltas)

    assert shown["step:a"]["error"] == view(error)
    assert shown["step:a"]["output"] == view({"iban": "DE001234"}) == {"iban": REDACTED}
    assert shown["step:a"]["reason"] == REDACTED
    assert shown["state:said"] == view([f"<{SECRET}>", "DE001234"]) == [f"<{REDACTED}>", REDACTED]
    assert shown["state:token"] == REDACTED
    assert SECRET not in json.dumps(commits.deltas)


def test_a_value_that_becomes_a_secret_is_redacted_from_then_on_and_shown_again_when_it_is_none(
    commits: Commits,
) -> None:
    commits.commit(state={"said": SECRET})
    later = commits.commit(state={"token": SECRET})
    last = commits.commit(dropped_state={"token"})

    assert later["set"] == {"state:token": REDACTED, "state:said": REDACTED}
    assert last["set"] == {"state:said": SECRET}
    assert last["drop"] == ["state:token"]


def test_a_key_of_the_state_that_is_a_secret_is_not_shown(commits: Commits) -> None:
    commits.commit(state={f"of {SECRET}": 1, "n": 2})
    hidden = commits.commit(state={"password": SECRET})

    assert hidden["drop"] == [f"state:of {SECRET}"]
    assert fold(commits.deltas) == commits.shown
    assert f"state:of {SECRET}" not in commits.shown


@pytest.mark.parametrize("secret", ['quo"ted-secret', "1e-07", "back\\slash"])
def test_a_secret_whose_json_differs_is_redacted_too(commits: Commits, secret: str) -> None:
    number = {"found": 1e-07} if secret == "1e-07" else {"found": repr(secret)}
    commits.commit(state={"password": secret, "said": number})

    assert REDACTED in fold(commits.deltas)["state:said"]["found"]


def test_of_a_token_only_the_public_part_is_shown() -> None:
    record = new_record(document(step("a")))
    record.parent = Parent("p#1", "s", 0, 1, "abcdefghijkl.secret", "1")
    one = Commits(record)
    own = "mnopqrstuvwx.secret"
    one.commit(steps={"a": StepRecord(StepStatus.IN_PROGRESS, token=own, dispatched_at=NOW)})
    one.commit(steps={"a": StepRecord(StepStatus.IN_PROGRESS, token=own, output={"said": own})})

    first, second = one.deltas
    assert first["set"]["parent"]["token"] == "abcdefghijkl"
    assert first["set"]["step:a"]["token"] == second["set"]["step:a"]["token"] == "mnopqrstuvwx"
    assert fold(one.deltas) == one.shown


def test_the_headers_of_a_webhook_are_not_shown(commits: Commits) -> None:
    commits.record.webhook = {"url": "https://x", "headers": {"X-Key": "k"}}

    assert commits.commit()["set"]["webhook"] == {"url": "https://x", "headers": {"X-Key": REDACTED}}


def test_a_field_that_goes_back_to_its_default_is_dropped(commits: Commits) -> None:
    commits.commit(fields={"signals": [{"name": "go"}], "paused": {"by": "ada"}})

    last = commits.commit(fields={"signals": [], "paused": None})

    assert last["drop"] == ["signals", "paused"]
    assert "step:a" not in commits.deltas[0]["set"], "a step that was never touched"


# ---- limits


def test_a_large_value_is_omitted_and_everything_beside_it_is_kept(commits: Commits) -> None:
    large = "é" * (MAX_VALUE_BYTES // 2)
    size = len(json.dumps({"text": large}, ensure_ascii=False, separators=(",", ":")).encode())
    unit = StepRecord(StepStatus.COMPLETE, output={"text": large}, worker="w1")

    kept = commits.commit(steps={"a": unit}, state={"text": large, "n": 1})["set"]

    assert kept["step:a"]["output"] == {"$omitted": size}
    assert (kept["step:a"]["worker"], kept["state:n"]) == ("w1", 1)
    assert kept["state:text"] == {"$omitted": MAX_VALUE_BYTES + 2}
    assert fold(commits.deltas) == commits.shown


def test_a_value_of_exactly_the_limit_is_kept(commits: Commits) -> None:
    text = "x" * (MAX_VALUE_BYTES - 2)

    assert commits.commit(state={"text": text})["set"]["state:text"] == text


def test_an_execution_with_many_bytes_of_deltas_gets_no_more(
    commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deltas, "MAX_DELTA_BYTES", 1_000)
    commits.commit(state={"n": 1})
    first = commits.mark.size

    last = commits.commit(state={"text": "x" * 1_000})
    for _ in range(3):
        commits.commit(state={"n": 2})

    assert first == len(compact_json(commits.deltas[0]))
    assert last.keys() == {"what", "version", "at", "omitted"}
    assert last["omitted"] > 1_000
    assert len(commits.deltas) == 2
    assert commits.mark == (commits.record.version, first, 4)


def test_an_execution_with_many_secrets_gets_no_more_deltas(commits: Commits) -> None:
    commits.commit(state={f"token{n}": f"secret-{n}" for n in range(MAX_SECRETS)})
    last = commits.commit(state={"password": "one-more"})

    assert "omitted" not in commits.deltas[0]
    assert "omitted" in last


# ---- snapshots


def test_the_first_delta_of_a_record_is_a_snapshot_and_so_is_one_after_a_commit_without(
    commits: Commits,
) -> None:
    first = commits.commit(state={"n": 1})
    second = commits.commit(state={"n": 2})
    commits.commit(has_delta=False, state={"m": 1})
    third = commits.commit(state={"n": 3})

    assert [delta.get("snapshot", False) for delta in (first, second, third)] == [True, False, True]
    assert first["set"]["inputs"] == {"n": 1, "user": "ada"}
    assert third["set"]["state:m"] == 1
    assert fold(commits.deltas) == commits.shown


def test_a_new_execution_begins_its_own_count(commits: Commits) -> None:
    commits.commit(state={"n": 1})

    again = build_delta(commits.record, Changes(), "1-m", compact_json, creates=True)

    assert json.loads(again.text)["snapshot"]
    assert DeltaMark.parse(again.mark).size == len(again.text)


@pytest.mark.parametrize("text", [None, "", "nonsense", "1-n x 0", "1-n 5"])
def test_a_mark_that_cannot_be_read_counts_as_none(text: str | None) -> None:
    assert DeltaMark.parse(text) == DeltaMark()


def test_texts_that_the_caller_has_are_used(commits: Commits) -> None:
    texts = {"state:n": "1.0"}

    delta = build_delta(commits.record, Changes(state={"n": 1}), "1-n", compact_json, texts)

    assert '"state:n":1.0' in delta.text


# ---- attempts


def attempts(world: EngineWorld, part: str) -> list[Json]:
    return [one for delta in world.deltas for one in delta.get(part, ())]


def test_every_dispatch_has_its_inputs_without_secrets() -> None:
    inputs = {"n": {"var": "input.n"}, "password": {"var": "input.p"}}
    world = world_of(document(step("a", input=inputs)), inputs={"n": 1, "p": "ssh-ssh"})
    world.advance()
    world.lose("a")

    assert attempts(world, "jobs") == [
        {"step": "a", "run_id": run_id, "attempt": 1, "inputs": {"n": 1, "password": REDACTED}}
        for run_id in (0, 1)
    ]


def test_the_items_of_a_map_and_children_have_their_inputs() -> None:
    child = document(step("c"))
    world = world_of(
        document(
            step("a", map={"over": [1, 2]}, input={"n": {"var": "item"}}),
            {"id": "b", "workflow": child, "input": {"m": 3}},
        )
    )
    world.advance()

    inputs = {one["step"]: one["inputs"] for one in attempts(world, "jobs")}
    assert inputs == {"a#0": {"n": 1}, "a#1": {"n": 2}, "b": {"m": 3}}


def test_a_child_that_is_cancelled_is_no_dispatch() -> None:
    world = world_of(document({"id": "b", "workflow": document(step("c"))}))
    world.advance()
    begun = attempts(world, "jobs")

    world.cancel()

    assert [one["step"] for one in begun] == ["b"]
    assert attempts(world, "jobs") == begun


def test_a_result_that_the_record_does_not_keep_is_in_the_delta() -> None:
    again = [when(IS_FIRST_RUN, {"set": ["a"]}), when(True, "complete")]
    world = world_of(document(step("a", retry=1), step("b", "a", branch=again)))
    world.advance()
    world.fail("a", "first")
    world.pass_time(60_000)
    world.finish("a", {"n": 1})
    world.finish("b", {"m": 2})

    failed, reset = attempts(world, "results")
    assert (failed["step"], failed["run_id"], failed["error"]["message"]) == ("a", 0, "first")
    assert reset == {"step": "b", "run_id": 0, "attempt": 1, "output": {"m": 2}}


def test_a_result_that_a_branch_rejects_has_its_output_and_the_error() -> None:
    world = world_of(document(step("a", retry=1, branch=[when(True, "retry")])))
    world.advance()
    world.finish("a", {"n": 1})

    [rejected] = attempts(world, "results")
    assert rejected["output"] == {"n": 1}
    assert rejected["error"]["kind"] == "rejected"


def test_an_iteration_of_a_loop_has_the_value_that_it_returned() -> None:
    world = world_of(document(step("a", loop={"max_iterations": 3})))
    world.advance()
    world.finish("a", {"_loop": "again", "value": {"n": 1}})

    assert attempts(world, "results") == [{"step": "a", "run_id": 0, "attempt": 1, "output": {"n": 1}}]


def test_the_items_of_a_map_that_is_reset_keep_their_results_in_the_history() -> None:
    again = [when(IS_FIRST_RUN, {"set": ["a"]}), when(True, "complete")]
    world = world_of(document(step("a", map={"over": [1]}, branch=again)))
    world.advance()
    world.finish("a#0", {"n": 7})

    assert attempts(world, "results") == [{"step": "a#0", "run_id": 0, "attempt": 1, "output": {"n": 7}}]
