"""The limits of a document: checked first, for new documents only, with what to do about it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.application.errors import DocumentTooBig, InvalidSpec
from orchestrator.application.spec.report import Report
from orchestrator.application.spec.validation import check_inputs, check_spec, load_spec, load_stored_spec
from orchestrator.application.values.document_limits import DEFAULT_LIMITS, TOO_BIG_HINT, DocumentLimits

SMALL = DocumentLimits(max_bytes=100, max_nodes=12)
MANY = [0] * (DEFAULT_LIMITS.max_nodes + 1)


def steps(count: int, prefix: str = "s") -> list[dict[str, Any]]:
    return [{"op": f"{prefix}{n}"} for n in range(count)]


@pytest.mark.parametrize(
    "text",
    [
        f"description: {'x' * 100}\nsteps: []",
        "steps: []\noutputs: {x: [1, 2, 3, 4, 5, 6, 7, 8, 9]}",
        '{"steps": [], "outputs": {"x": [1, 2, 3, 4, 5, 6, 7, 8, 9]}}',
        "a: &a [1, 2, 3, 4]\nsteps: [*a, *a]",
        '{"steps": &a [1, 2, 3, 4], "outputs": {"x": *a, "y": *a}}',
    ],
)
def test_a_document_beyond_the_limits_is_told_from_one_that_is_wrong(text: str) -> None:
    with pytest.raises(DocumentTooBig) as rejected:
        load_spec(text, limits=SMALL)

    [problem] = rejected.value.problems
    assert (problem.code, problem.hint) == ("too_big", TOO_BIG_HINT)


def test_a_document_within_the_limits_is_checked_as_a_whole() -> None:
    with pytest.raises(InvalidSpec) as rejected:
        load_spec('{"steps": [{"op": "a", "depends_on": ["b"]}]}', limits=SMALL)

    assert not isinstance(rejected.value, DocumentTooBig)
    assert [(one.code, one.line) for one in rejected.value.problems] == [("unknown_dependency", 1)]


@pytest.mark.untraced
def test_a_new_document_has_fewer_nodes_than_a_stored_one_and_than_inputs() -> None:
    document: dict[str, Any] = {"steps": [], "outputs": {"x": MANY}}

    with pytest.raises(InvalidSpec, match=f"more than {DEFAULT_LIMITS.max_nodes:,} nodes"):
        check_spec(document)
    with pytest.raises(DocumentTooBig):
        load_spec(json.dumps(document))
    loaded = load_stored_spec(document)
    assert loaded.spec.outputs == {"x": MANY}
    assert check_inputs(loaded.spec, {"x": MANY}) == ({"x": MANY}, [])


def test_steps_of_inline_children_count(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = DocumentLimits(max_steps=4)
    monkeypatch.setattr("orchestrator.application.spec.validation.DEFAULT_LIMITS", limits)
    child = {"id": "child", "workflow": {"flow": [{"name": "c0", "fn": "f"}]}}
    others = [{"id": "named", "workflow": "registered"}, {"op": "a"}]

    assert len(check_spec({"steps": [child, *others]}).spec.steps) == 3
    with pytest.raises(InvalidSpec) as rejected:
        check_spec({"steps": [child, *others, 5]})

    [problem] = rejected.value.problems  # the wrong type of the last step is not looked at
    assert problem.message == "the document has 5 steps, inline children included; the limit is 4"
    assert (problem.code, problem.hint) == ("too_big", TOO_BIG_HINT)


@pytest.mark.untraced
def test_a_workflow_of_ten_thousand_steps_and_some_is_accepted_and_larger_ones_are_only_loaded() -> None:
    assert len(check_spec({"steps": steps(10_002)}).spec.steps) == 10_002
    larger = {"steps": steps(DEFAULT_LIMITS.max_steps + 1)}

    with pytest.raises(InvalidSpec, match="12,001 steps"):
        check_spec(larger)

    assert len(load_stored_spec(larger).spec.steps) == 12_001


def test_hints_have_a_budget_in_characters() -> None:
    names = [f"{'x' * 90}{n}" for n in range(100)]
    report = Report({})

    hints = [report.suggest(f"{'x' * 90}y{n}", names) for n in range(20)]

    assert hints[0] is not None
    assert hints[-1] is None
