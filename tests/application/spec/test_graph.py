"""The dependency graph: declared and implied edges, loops that are not cycles, cycles by name."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.application.spec.graph import Graph
from orchestrator.application.spec.graph_builder import EdgeProblem, build_graph
from orchestrator.application.spec.model import StepSpec


def step(step_id: str, *parents: str, **inputs: Any) -> StepSpec:
    return StepSpec(id=step_id, fn="f", depends_on=parents, input=inputs)


def graph_of(*steps: StepSpec) -> Graph:
    graph, faults = build_graph(steps)
    assert faults == []
    return graph


def faults_of(*steps: StepSpec) -> list[EdgeProblem]:
    return build_graph(steps)[1]


def reads(step_id: str, *default: Any) -> dict[str, Any]:
    path = f"steps.{step_id}.output.x"
    return {"var": [path, *default] if default else path}


def test_edges_are_in_spec_order() -> None:
    graph = graph_of(step("c", "b", "a", "b"), step("a"), step("b", "a"), step("d", "c"))

    assert graph.order == ("c", "a", "b", "d")
    assert graph.index == {"c": 0, "a": 1, "b": 2, "d": 3}
    assert graph.parents == {"c": ("a", "b"), "a": (), "b": ("a",), "d": ("c",)}
    assert graph.children == {"c": ("d",), "a": ("c", "b"), "b": ("c",), "d": ()}
    assert graph.roots == ("a",)


@pytest.mark.parametrize(
    "value",
    [
        reads("a"),
        {"var": "steps.a"},
        {"var": "flows.a.x"},
        {"vars": "steps.a.output.items[*].x"},
        [1, {"deep": [reads("a")]}],
        {"+": [1, reads("a")]},
        {"if": [True, 1, reads("a")]},
    ],
)
def test_a_reference_is_a_dependency(value: Any) -> None:
    assert graph_of(step("b", v=value), step("a")).parents["b"] == ("a",)


@pytest.mark.parametrize(
    "value",
    [
        reads("a", 0),
        reads("b"),
        {"vars": "steps[*].output.x"},
        {"$literal": reads("a")},
        {"var": "state.a"},
        {"var": ["steps.unknown.output", None]},
        [{"var": "steps.unknown.output"}],
        "steps.a.output.x",
    ],
)
def test_these_references_are_not_dependencies(value: Any) -> None:
    assert graph_of(step("a"), step("b", v=value)).parents["b"] == ()


def test_a_nested_reference_to_a_descendant_reads_the_previous_round() -> None:
    graph = graph_of(step("a", v=[reads("c")]), step("b", "a"), step("c", "b"))

    assert graph.parents == {"a": (), "b": ("a",), "c": ("b",)}


def test_a_whole_reference_to_a_descendant_closes_a_cycle() -> None:
    [fault] = faults_of(step("a", v=reads("c")), step("b", "a"), step("c", "b"))

    assert fault == EdgeProblem(
        "a", ("input", "v"), "cycle", "these steps wait for each other: a -> c -> b -> a"
    )


def test_a_cycle_of_references_alone_is_a_cycle() -> None:
    [fault] = faults_of(step("x"), step("a", v=[reads("b")]), step("b", w=[reads("a")]))

    assert (fault.step_id, fault.where) == ("a", ("input", "v"))
    assert fault.message == "these steps wait for each other: a -> b -> a"


def test_every_separate_cycle_is_named_once() -> None:
    faults = faults_of(
        step("a", "a"),
        step("b", "c"),
        step("c", "d", "a"),
        step("d", "x", "b"),
        step("x"),
        step("below", "d"),
        step("e", v=reads("f")),
        step("f", "e"),
    )

    rings = [fault.message.removeprefix("these steps wait for each other: ") for fault in faults]
    assert rings == ["a -> a", "b -> c -> d -> b", "e -> f -> e"]


def test_a_cycle_that_shares_steps_with_one_already_named_is_left_for_later() -> None:
    faults = faults_of(step("a", "b"), step("b", "c"), step("c", "b", "d"), step("d", "a"))

    assert [fault.message.rpartition(": ")[2] for fault in faults] == ["b -> c -> b"]


def test_a_step_that_is_read_twice_is_one_parent() -> None:
    graph = graph_of(step("a"), step("b", v=[reads("a"), reads("a")], w=reads("a")))

    assert graph.parents["b"] == ("a",)


def test_a_step_that_depends_on_another_in_two_ways_is_counted_once() -> None:
    graph = graph_of(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))

    assert graph.descendants(["a"]) == ["b", "c", "d"]


def test_only_a_join_by_number_or_expression_is_evaluated_before_all_parents_have_ended() -> None:
    eager = StepSpec(id="n", fn="f", depends_on=("a", "b"), join=1)
    graph = graph_of(step("a"), step("b"), eager, step("all", "a", "b"))

    assert graph.eager == {"n"}
    assert [graph.may_join("n", unmet) for unmet in (2, 1, 0)] == [False, True, True]
    assert [graph.may_join("all", unmet) for unmet in (2, 1, 0)] == [False, False, True]


def test_two_steps_are_related_when_one_is_above_the_other() -> None:
    graph = graph_of(step("a"), step("b", "a"), step("c", "b"), step("d", "a"))

    pairs = {("a", "c"), ("c", "a"), ("c", "d"), ("d", "b")}
    assert graph.related(pairs) == {("a", "c"), ("c", "a")}


def test_a_long_cycle_is_named_in_short() -> None:
    n = 10_000
    [fault] = faults_of(*(step(f"s{i}", f"s{(i + 1) % n}") for i in range(n)))

    assert fault.message.endswith(
        ": s0 -> s1 -> s2 -> s3 -> s4 -> s5 -> s6 -> s7 -> s8 -> s9 -> ... 9990 more ... -> s0"
    )


def test_an_unknown_dependency_is_reported_where_it_is_named() -> None:
    [fault] = faults_of(step("a", "b", "zz", v={"var": "steps.yy.output"}), step("b"))

    assert (fault.where, fault.unknown) == (("depends_on", 1), "zz")
    assert fault.message == "step 'a' depends on unknown step 'zz'"


def test_the_longest_declared_id_wins() -> None:
    graph = graph_of(step("a"), step("a.b"), step("a.b.output"), step("z", v={"var": "steps.a.b.c"}))

    assert graph.find_step(("a", "output", "x")) == ("a", ("output", "x"))
    assert graph.find_step(("a", "b", "c")) == ("a.b", ("c",))
    assert graph.find_step(("a", "b", "output", "x")) == ("a.b.output", ("x",))
    assert graph.find_step(("b",)) is None
    assert graph.find_step(()) is None
    assert graph.find_step(("missing",) * 100_000) is None
    assert graph.parents["z"] == ("a.b",)


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("a", "a"),
        ("steps.a.status", "a"),
        ("steps.a", "a"),
        ("a.status", "a.status"),
        ("steps.a.status.status", "a.status"),
        ("steps.a.output", None),
        ("b", None),
        ("", None),
    ],
)
def test_a_target_is_an_id_or_the_status_of_a_step(target: str, found: str | None) -> None:
    graph = graph_of(step("a"), *([step("a.status")] if found != "a" else []))

    assert graph.find_target(target) == found


def test_the_descendants_in_a_chain_of_ten_thousand_steps_are_found() -> None:
    n = 10_000
    graph = graph_of(*(step(f"s{i}", *[f"s{i - 1}"] * (i > 0)) for i in range(n)))

    assert graph.descendants(["s0"]) == [f"s{i}" for i in range(1, n)]
    assert graph.descendants(["s9998"]) == ["s9999"]


def test_ten_thousand_steps_may_meet_in_one() -> None:
    wide = [f"s{i}" for i in range(10_000)]
    graph = graph_of(step("start"), *(step(name, "start") for name in wide), step("end", *wide))

    assert graph.parents["end"] == graph.children["start"] == tuple(wide)
    assert graph.descendants(["s5"]) == ["end"]


def test_thousands_of_steps_may_read_the_previous_round_of_a_descendant() -> None:
    n, dice = 5_000, random.Random(1)
    later = [dice.randrange(i + 1, n) if i < n - 1 else 0 for i in range(n)]
    graph = graph_of(*(step(f"s{i}", *[f"s{i - 1}"] * (i > 0), v=[reads(f"s{later[i]}")]) for i in range(n)))

    assert all(graph.parents[f"s{i}"] == (f"s{i - 1}",) for i in range(1, n - 1))
    assert graph.parents["s4999"] == ("s0", "s4998")


def test_ten_thousand_cycles_are_all_named() -> None:
    n = 10_000
    faults = faults_of(*(step(f"s{i}", f"s{i ^ 1}", f"s{i // 2}") for i in range(n)))

    assert len(faults) == n // 2
    assert {fault.code for fault in faults} == {"cycle"}


EDGES = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
)


@given(EDGES, st.randoms(use_true_random=False), st.data())
def test_the_descendants_are_all_steps_that_can_be_reached(
    drawn: tuple[int, set[tuple[int, int]]], shuffler: random.Random, data: st.DataObject
) -> None:
    n, pairs = drawn
    steps = [step(f"s{i}", *(f"s{a}" for a, b in pairs if a < b == i)) for i in range(n)]
    shuffler.shuffle(steps)
    graph = graph_of(*steps)
    ids = data.draw(st.sets(st.sampled_from(graph.order)))

    reached = set(ids)
    for _ in range(n):
        reached |= {s.id for s in steps if reached & set(s.depends_on)}
    assert graph.descendants(ids) == [s.id for s in steps if s.id in reached - ids]


@given(EDGES, EDGES)
def test_nested_references_are_edges_exactly_when_they_do_not_point_below(
    declared: tuple[int, set[tuple[int, int]]], read: tuple[int, set[tuple[int, int]]]
) -> None:
    n = declared[0]
    below = {i: {b for a, b in declared[1] if a == i < b} for i in range(n)}
    for _ in range(n):
        below = {i: near.union(*(below[b] for b in near)) for i, near in below.items()}
    asks = {(a, b) for a, b in read[1] if a < n and b < n and a != b}

    graph, _ = build_graph(
        [
            step(
                f"s{i}",
                *(f"s{a}" for a, b in declared[1] if a < b == i),
                **{f"v{b}": [reads(f"s{b}")] for a, b in asks if a == i},
            )
            for i in range(n)
        ]
    )

    for i in range(n):
        expected = {a for a, b in declared[1] if a < b == i} | {
            b for a, b in asks if a == i and b not in below[i]
        }
        assert set(graph.parents[f"s{i}"]) == {f"s{parent}" for parent in expected}
