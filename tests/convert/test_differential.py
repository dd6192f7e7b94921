"""Converted templates and paths give what jinja2 and jmespath give, over data of many shapes."""

from __future__ import annotations

from typing import Any

import jmespath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment, StrictUndefined
from jmespath.exceptions import JMESPathError

from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import evaluate
from orchestrator.convert.jinja import JinjaTranslator, convert_template
from orchestrator.convert.jmespath import convert_path

FAILED = object()
TEXTS = st.sampled_from(["", "a", "b", "Ada", "ä, ö", "10", "9"])
NUMBERS = st.integers(-3, 12) | st.sampled_from([-1.5, 0.5, 10.25])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS


def people(ages: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    person = st.fixed_dictionaries(
        {"name": TEXTS, "tags": st.lists(TEXTS, max_size=3)}, optional={"age": ages}
    )
    return st.lists(person, max_size=5)


# ---- jinja

LOOPS = [
    "{% for p in flows.a.people %}{{ p.name }}{% endfor %}",
    "<{% for p in flows.a.people %}{{ p.name }};{% endfor %}>",
    "{% for p in flows.a.people %}{{ p.name }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for p in flows.a.people %}{{ p.name | upper }}{% else %}none{% endfor %}",
    "{% for p in flows.a.people if p.name == 'Ada' %}[{{ p.name }}]{% else %}nobody{% endfor %}",
    "{% for p in flows.a.people %}{% if p.age > 3 %}{{ p.name }}{% else %}young{% endif %},{% endfor %}",
    "{% for p in flows.a.people %}{{ p.name }}({% for t in p.tags %}{{ t }} {% endfor %}){% endfor %}",
    "{% for p in flows.a.people %}{{ p.tags | join('+') }}={{ p.tags | length }};{% endfor %}",
    "{% for p in flows.a.people %}{{ p.age + 2 > 4 }} {% endfor %}",
    "{% for x in flows.a.scalars %}{{ x }}|{% endfor %}",
    "{% for x in flows.a.scalars %}{{ x }}{% endfor %}",
]


def as_text(value: Any) -> str:
    """The text that a template gives for a value."""
    return str(value)


@pytest.mark.parametrize("template", LOOPS)
@given(people=people(NUMBERS), scalars=st.lists(SCALARS, max_size=4))
def test_a_loop_gives_what_jinja_gives(
    template: str, people: list[dict[str, Any]], scalars: list[Any]
) -> None:
    people = [{"age": 5, **person} for person in people]
    data = {"people": people, "scalars": scalars}
    expected = Environment(undefined=StrictUndefined).from_string(template).render(flows={"a": data})

    rule = convert_template(template, JinjaTranslator(_resolve))

    assert as_text(evaluate(rule, {"steps": {"a": {"output": data}}})) == expected


def _resolve(name: str, keys: list[Any]) -> tuple[Any, list[Any]]:
    assert name == "flows"
    return {"var": f"steps.{keys[0]}.output"}, keys[1:]


@pytest.mark.parametrize("template", LOOPS)
def test_a_loop_over_nothing_is_empty_where_jinja_fails(template: str) -> None:
    rule = convert_template(template, JinjaTranslator(_resolve))

    assert as_text(evaluate(rule, {"steps": {}})) in ("", "<>", "none", "nobody")


# ---- jmespath

EXTREMES = [
    "max_by(people, &age)",
    "min_by(people, &age)",
    "max_by(people, &name)",
    "min_by(people, &name).name",
    "max_by(people, &length(tags))",
    "max_by(people[?name != 'a'], &age).tags",
    "sort_by(people, &age)[0]",
    "sort_by(people, &age)[-1]",
    "sort_by(people, &name) | [0].name",
    "sort_by(people, &name) | [-1]",
    "max_by(people, &age) | {who: name, how_old: age}",
]


@pytest.mark.parametrize("path", EXTREMES)
@given(people=people(NUMBERS) | people(SCALARS) | people(TEXTS))
def test_an_extreme_is_what_jmespath_gives(path: str, people: list[dict[str, Any]]) -> None:
    """Where jmespath fails, because the keys are not all numbers or all strings, the expression fails too."""
    rule, _ = convert_path(path)

    assert outcome_of_rule(rule, people) == outcome_of_path(path, people)


def outcome_of_path(path: str, people: list[dict[str, Any]]) -> Any:
    try:
        return jmespath.search(path, {"people": people})
    except (JMESPathError, TypeError):
        return FAILED


def outcome_of_rule(rule: Any, people: list[dict[str, Any]]) -> Any:
    try:
        return evaluate(rule, {"result": {"people": people}})
    except ExpressionError:
        return FAILED


@pytest.mark.parametrize("path", EXTREMES)
def test_an_extreme_of_nothing_is_null_where_jmespath_fails(path: str) -> None:
    rule, _ = convert_path(path)

    assert evaluate(rule, {"result": {}}) is None
