"""The queue of a step with tags: which entry of the table wins, and which tags are rejected."""

from __future__ import annotations

import pytest

from orchestrator.application.errors import NoRoute
from orchestrator.application.spec.tag_routes import TagRoutes
from worlds.records import spec

TABLE = TagRoutes.parse("gpu=gpu-box, eu + gpu = eu-gpu, eu+big=eu-big, big=large, big=never")


@pytest.mark.parametrize(
    ("tags", "queue"),
    [
        ([], "own"),
        (["gpu"], "gpu-box"),
        (["gpu", "eu"], "eu-gpu"),
        (["eu"], "eu-gpu"),  # of two with as many tags the first
        (["gpu", "gpu"], "gpu-box"),
        (["big"], "large"),
    ],
)
def test_the_entry_with_the_fewest_tags_that_covers_a_step_is_taken(tags: list[str], queue: str) -> None:
    assert TABLE.queue_of(tags, "own") == queue


def test_tags_that_no_entry_covers_are_rejected_with_advice() -> None:
    with pytest.raises(NoRoute) as refused:
        TABLE.queue_of(["gpu", "big"], "own", "train")

    assert str(refused.value) == (
        "step 'train' needs a worker with the tags big, gpu, and no entry of ORCHESTRATOR_TAGS covers them:"
        " add one to the settings of the coordinators, such as big+gpu=QUEUE, or set the queue of the step"
        " (known entries: gpu=gpu-box, eu+gpu=eu-gpu, big+eu=eu-big, big=large, big=never)"
    )


def test_without_a_table_every_tag_is_rejected() -> None:
    with pytest.raises(NoRoute, match="known entries: none"):
        TagRoutes().queue_of(["gpu"], "own")


def test_an_open_table_keeps_the_queue_of_other_steps() -> None:
    table = TagRoutes.parse("gpu=gpu-box, *")

    assert table == TagRoutes.parse("gpu=gpu-box").allow_unknown_tags()
    assert table.queue_of(["gpu"], "own") == "gpu-box"
    assert table.queue_of(["eu"], "own") == "own"


@pytest.mark.parametrize("text", ["", "*", "gpu=q", "a+b=q.1, c=q-2, *", "eu west=q"])
def test_a_table_is_formatted_as_it_is_parsed(text: str) -> None:
    assert str(TagRoutes.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu", "'gpu' is not an entry such as"),
        ("=q", "'=q' is not an entry"),
        ("gpu+=q", "is not an entry"),
        ("gpu=", "the queue '' must be letters"),
        ("gpu=a b", "the queue 'a b' must be letters"),
        ("gpu=q, eu", "'eu' is not an entry"),
    ],
)
def test_an_invalid_table_is_rejected(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TagRoutes.parse(text)


def test_a_workflow_is_checked_step_by_step() -> None:
    found = TABLE.queues(spec(a={}, b={"tags": ["gpu"]}, c={"tags": ["tpu"], "queue": "mine"}).spec)
    assert found == {"default", TABLE.queue_of(["gpu"], ""), "mine"}

    with pytest.raises(NoRoute, match="step 'b' needs a worker with the tags tpu"):
        TABLE.queues(spec(a={}, b={"tags": ["tpu"]}).spec)


def test_a_step_with_its_own_queue_needs_no_table_but_a_default_queue_does_not_count() -> None:
    loaded = spec(
        {"defaults": {"queue": "usual"}},
        named={"tags": ["gpu"], "queue": "mine"},
        tagged={"tags": ["gpu"]},
        plain={},
    )

    found = {step.id: TABLE.queue_of(step.tags, step.queue) for step in loaded.spec.steps}

    assert found == {"named": "mine", "tagged": "gpu-box", "plain": "usual"}


def test_children_and_compensations_have_queues_too() -> None:
    undo = {"fn": "undo"}
    child = {"steps": [{"op": "x", "queue": "inner"}, {"id": "w", "wait": {"signal": "go"}}]}
    found = TABLE.queues(
        spec(
            a={"tags": ["gpu"], "compensate": undo},
            b={"queue": "own", "compensate": {**undo, "queue": "other"}},
            c={"fn": None, "workflow": child},
            d={"fn": None, "workflow": "registered"},
        ).spec
    )

    assert found == {TABLE.queue_of(["gpu"], ""), "own", "other", "inner"}
