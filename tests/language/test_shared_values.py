"""Values that executions share, in memory and on Redis: those of a group, and those of a family."""

from __future__ import annotations

from language.stage import Stage
from language.written import child
from worlds.documents import document, step

KV = {"scopes": ["flow", "global", "flow_group"]}
READS = {"group": {"var": "kv.flow_group"}}


def test_a_group_sees_what_any_of_its_executions_has_written(stage: Stage) -> None:
    stage.start(document(step("a"), kv=KV), group="g")
    stage.finish("a", {"flow_group:city": "Oslo", "own": 1})
    assert stage.state == {"own": 1}

    seen = {}
    for group in ("g", "other", None):
        stage.start(document(step("b", input=READS), kv=KV), group=group)
        seen[group] = stage.out["b"].inputs["group"]

    assert seen == {"g": {"city": "Oslo"}, "other": {}, None: {}}
    assert stage.shared("flow_group", "g") == {"city": "Oslo"}


def test_children_add_to_the_values_of_their_root_and_all_executions_to_those_of_their_group(
    stage: Stage,
) -> None:
    adds = document(step("a", kv_add={"global:total": {"var": "input.n"}, "flow_group:team": 1}), kv=KV)
    parent = document(
        child("c", adds, input={"n": 2}),
        child("d", adds, input={"n": 3}),
        outputs={"total": {"var": "kv.global.total"}, "team": {"var": "kv.flow_group.team"}},
        kv=KV,
    )

    outcomes = []
    for _ in range(2):
        stage.start(parent, group="g")
        stage.child("c").finish("a", {})
        stage.child("d").finish("a", {})
        outcomes.append(stage.outcome)

    assert outcomes == [{"total": 5, "team": 2}, {"total": 5, "team": 4}]
