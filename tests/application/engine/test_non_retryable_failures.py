"""Failures that are not tried again: said by what was raised, by its worker, or by the document."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.errors import InvalidSpec
from orchestrator.application.records.decisions import Failed, Pending
from orchestrator.application.records.events import make_failure
from orchestrator.application.spec.model import CompensateSpec, RetrySpec
from orchestrator.application.spec.validation import load_spec
from orchestrator.application.values.failure_kinds import (
    NON_RETRYABLE_KINDS,
    RETRYABLE_KINDS,
    find_matching_name,
    matches_any_type,
    type_name,
)
from orchestrator.backend import Backend, InMemoryStore, InProcessRunner, SqliteRunner, SqliteStore
from orchestrator.builder import WorkflowBuilder
from orchestrator.invocation.exceptions import (
    MAX_TRACEBACK_CHARS,
    MAX_TRACEBACK_LINE_CHARS,
    MAX_TYPES,
    NON_RETRYABLE_VARIABLE,
    describe_exception,
)
from orchestrator.local.workflow import Workflow
from orchestrator.settings import Settings
from worlds.engine_world import EngineWorld, world_of
from worlds.specs import branch, map_step, task

MODULE = __name__


class NonRetryableError(Exception):
    pass


class Rejected(NonRetryableError):
    pass


class non_retryable_thing(Exception):
    pass


class Refused(ValueError):
    non_retryable = True


class Unsure(Exception):
    @property
    def non_retryable(self) -> bool:
        raise RuntimeError("nobody knows")


# ---- in the document


def failed(world: EngineWorld, unit: str = "a", **details: Any) -> Any:
    event = replace(world.error(unit), error=make_failure("exception", "no", **details))
    return world.decide(event)


@pytest.mark.parametrize(
    ("names", "details"),
    [
        (("ValueError",), {"type_": "ValueError"}),
        (("Rejected",), {"type_": "Rejected", "types": ["shop.errors.Rejected"]}),
        (("shop.errors.Rejected",), {"type_": "Rejected", "types": ["shop.errors.Rejected"]}),
        (("LookupError",), {"type_": "KeyError", "types": ["KeyError", "LookupError"]}),
        (("Never", "exception"), {"type_": "KeyError"}),
        (("exception",), {}),
    ],
)
def test_a_failure_that_the_document_names_is_final(names: tuple[str, ...], details: dict[str, Any]) -> None:
    world = world_of(task("a", retry=RetrySpec(5, non_retryable=names), max_attempts=5))
    world.advance()

    assert isinstance(failed(world, **details), Failed)

    assert world["a"].attempt == 1
    why = f"retry.non_retryable names {names[-1]}"
    assert world["a"].error == {**(world["a"].error or {}), "not_retried": why}
    moves = [entry["error"]["not_retried"] for entry in world.history if entry.get("to") == "failed"]
    assert moves == [why]


@pytest.mark.parametrize(
    "details",
    [
        {},
        {"type_": "KeyError"},
        {"type_": "ValueErrors", "types": ["shop.ValueErrors"]},
        {"type_": "KeyError", "types": "ValueError"},
        {"type_": "KeyError", "types": ["shop.ValueError.inner"]},
    ],
)
def test_any_other_failure_is_tried_again(details: dict[str, Any]) -> None:
    world = world_of(
        task("a", retry=RetrySpec(5, non_retryable=("ValueError", "errors.Rejected", "timeout")))
    )
    world.advance()

    assert isinstance(failed(world, **details), Pending)

    assert world.statuses["a"] == "retry"
    assert "not_retried" not in (world["a"].error or {})


@pytest.mark.parametrize("kind", RETRYABLE_KINDS)
def test_every_kind_that_is_tried_again_can_be_named(kind: str) -> None:
    world = world_of(task("a", retry=RetrySpec(5, non_retryable=(kind,))))
    world.advance()

    assert isinstance(world.fail("a", kind=kind), Failed)


def test_what_it_says_also_holds_for_max_attempts_where_nothing_is_tried_later() -> None:
    document = """
    steps:
      - {op: a, max_attempts: 4, retry: {max_retries: 0, non_retryable: [ValueError]}}
      - {op: b, max_attempts: 4, retry: {max_retries: 0}}
    """
    first, second = load_spec(document).spec.steps

    assert first.retry == RetrySpec(0, non_retryable=("ValueError",))
    assert second.retry is None
    world = world_of(first)
    world.advance()

    failed(world, type_="KeyError")
    failed(world, type_="KeyError")

    assert (world.statuses["a"], world["a"].attempt) == ("in_progress", 3)
    assert isinstance(failed(world, type_="ValueError"), Failed)


def test_the_defaults_hold_until_a_step_says_otherwise() -> None:
    document = """
    defaults: {retry: {non_retryable: [ValueError]}}
    steps: [{op: a}, {op: b, retry: 1}]
    """

    first, second = load_spec(document).spec.steps

    assert first.retry == RetrySpec(non_retryable=("ValueError",))
    assert second.retry == RetrySpec(1)


def test_what_a_worker_says_holds_without_a_word_of_the_document() -> None:
    world = world_of(task("a", max_attempts=5))
    world.advance()

    assert isinstance(failed(world, not_retried="it is a NonRetryableError"), Failed)
    assert world["a"].attempt == 1


def test_on_error_follows_a_failure_that_is_final() -> None:
    world = world_of(task("a", retry=RetrySpec(5), on_error="continue"), task("b", "a"))
    world.advance()

    failed(world, not_retried="as it is")

    assert (world.statuses["a"], world.statuses["b"]) == ("failed", "in_progress")


def test_a_branch_that_says_retry_is_obeyed() -> None:
    world = world_of(task("a", max_attempts=3, branch=(branch(True, "retry"),)))
    world.advance()

    failed(world, not_retried="as it is")

    assert (world.statuses["a"], world["a"].attempt) == ("in_progress", 2)


def test_an_item_of_a_map_and_a_compensation_are_judged_the_same_way() -> None:
    retry = RetrySpec(5, non_retryable=("ValueError",))
    items = world_of(map_step("m", [1, 2], retry=retry, on_error="continue"))
    items.advance()
    undo = world_of(task("a", compensate=CompensateSpec("undo", retry=retry)), task("b", "a"))
    undo.advance()
    undo.finish("a", {})
    undo.fail("b")

    items.decide(replace(items.error("m#0"), error=make_failure("exception", "no", "ValueError")))
    items.decide(replace(items.error("m#1"), error=make_failure("exception", "no", "KeyError")))
    failed(undo, "a#undo", type_="ValueError")

    assert (items.item("m#0").status, items.item("m#1").status) == ("failed", "retry")
    assert (items.item("m#0").error or {})["not_retried"] == "retry.non_retryable names ValueError"
    assert undo.record.items["a#undo"].status == "failed"


@pytest.mark.parametrize("name", ["timeot", "expression", "Value Error", "", "shop.", ".Rejected", "1x"])
def test_a_name_that_can_be_neither_is_refused_and_told_what_can(name: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        load_spec(f"steps: [{{op: a, retry: {{non_retryable: ['{name}']}}}}]")

    [problem] = refused.value.problems
    assert "such as ValueError or package.Rejected" in problem.message
    assert "child_failed, exception, lost, rejected, timeout" in problem.message


def test_the_kinds_that_can_be_named_are_tried_again_otherwise() -> None:
    assert not NON_RETRYABLE_KINDS & set(RETRYABLE_KINDS)


def test_the_builder_takes_types_and_names() -> None:
    written = WorkflowBuilder("w")
    written.step("a", retry={"non_retryable": [ValueError, Refused, "timeout"]})

    [step] = written.to_dict()["steps"]

    assert step["retry"] == {"non_retryable": ["ValueError", f"{MODULE}.Refused", "timeout"]}


def test_names_are_compared_whole_or_by_their_last_word() -> None:
    assert matches_any_type("Rejected", ["a.Rejected"])
    assert matches_any_type("a.Rejected", ["a.Rejected"])
    assert not matches_any_type("b.Rejected", ["a.Rejected"])
    assert not matches_any_type("Reject", ["a.Rejected"])
    assert find_matching_name(make_failure("timeout", "late"), ["ValueError", "timeout"]) == "timeout"


# ---- what was raised


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NonRetryableError("no"), "it is a NonRetryableError"),
        (Rejected("no"), "it is a NonRetryableError"),
        (non_retryable_thing("no"), "it is a non_retryable_thing"),
        (Refused("no"), "its attribute non_retryable is set"),
        (Unsure("no"), None),
        (ValueError("no"), None),
    ],
)
def test_an_exception_can_say_that_it_is_final(error: Exception, reason: str | None) -> None:
    assert describe_exception(raised(error)).get("not_retried") == reason


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ("ValueError", "ValueError"),
        (" KeyError , LookupError", "LookupError"),
        (f"{MODULE}.Odd", f"{MODULE}.Odd"),
        ("Odd", "Odd"),
        ("", None),
        (" , ", None),
        ("Exception", None),
        ("KeyError", None),
    ],
)
def test_the_worker_names_types_that_are_final(named: str, reason: str | None) -> None:
    class Odd(ValueError, LookupError):
        pass

    Odd.__qualname__ = "Odd"
    settings = Settings.from_environment({NON_RETRYABLE_VARIABLE: named})

    failure = describe_exception(raised(Odd("no")), non_retryable=settings.non_retryable)

    assert failure.get("not_retried") == (reason and f"{NON_RETRYABLE_VARIABLE} of its worker names {reason}")


def test_the_types_are_told_where_they_say_more_than_the_name() -> None:
    assert "types" not in describe_exception(raised(ValueError("no")))
    assert describe_exception(raised(KeyError("no")))["types"] == ["KeyError", "LookupError"]
    assert describe_exception(raised(Refused("no")))["types"] == [f"{MODULE}.Refused", "ValueError"]
    assert type_name(KeyError) == "KeyError"


def test_a_tall_family_is_told_in_part() -> None:
    tall: type[Exception] = Exception
    for n in range(50):
        tall = type(f"Level{n}", (tall,), {})

    assert len(describe_exception(raised(tall()))["types"]) == MAX_TYPES


def test_the_traceback_tells_what_caused_it() -> None:
    def inner() -> None:
        raise KeyError("sku-1")

    try:
        try:
            inner()
        except KeyError as cause:
            raise ValueError("no such order") from cause
    except ValueError as error:
        told = describe_exception(error)["traceback"]

    assert "in inner" in told
    assert "KeyError: 'sku-1'" in told
    assert "direct cause of the following exception" in told
    assert told.endswith("ValueError: no such order")


def test_a_long_message_does_not_hide_the_type_of_the_error() -> None:
    told = describe_exception(raised(ValueError("x" * 100_000)))["traceback"]

    assert "in raised" in told
    assert len(told) <= MAX_TRACEBACK_CHARS
    assert max(map(len, told.splitlines())) == MAX_TRACEBACK_LINE_CHARS + len("...")


def test_what_is_hidden_is_hidden_before_anything_is_cut() -> None:
    secret = "hunter2" * 100
    hide = lambda text: text.replace(secret, "<redacted>")  # noqa: E731

    told = describe_exception(raised(ValueError(f"{'y' * 190} {secret}")), hide)

    assert "hunter2" not in str(told)


def test_an_exception_that_cannot_be_looked_at_is_still_a_failure() -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("nothing to see")

    def hide(text: str) -> str:
        if text.startswith("Traceback"):
            raise ValueError(text)
        return text

    assert describe_exception(raised(Hostile()))["message"] == "Hostile"
    assert describe_exception(raised(ValueError("x")), hide)["traceback"] == ""


# ---- in one process


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize(("error", "calls"), [(Refused("no"), 1), (KeyError("no"), 3), (OSError("no"), 1)])
def test_it_is_not_called_again(kind: str, error: Exception, calls: int, tmp_path: Path) -> None:
    called = []

    def execute(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
        called.append(fn)
        raise error

    file = tmp_path / "db"
    store = InMemoryStore() if kind == "memory" else SqliteStore(file)
    runner = InProcessRunner() if kind == "memory" else SqliteRunner(file)
    backend = Backend(execute, store=store, runner=runner)
    document = "steps: [{op: a, max_attempts: 3, retry: {max_retries: 0, non_retryable: [OSError]}}]"

    end = Workflow(backend.create(document), backend).run()

    assert len(called) == calls
    assert isinstance(end, Failed)
    assert ("not_retried" in end.error) is (calls == 1)
    assert "in execute" in end.error["traceback"]
