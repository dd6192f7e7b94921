"""Sources: what their configurations may read, and what a job carries of them."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.errors import InvalidSpec
from orchestrator.application.spec.model import StepSpec
from orchestrator.application.spec.sources import merge_configuration
from orchestrator.application.spec.validation import check_spec

Json = dict[str, Any]

SECRETS: Json = {"type": "env", "configuration": {"vars": ["TOKEN", "USER"]}}
API: Json = {"type": "http", "configuration": {"url": "u", "retries": {"most": 2}}}
TOKEN = {"var": "sources.secrets.TOKEN"}
INSTEAD = "read sources.<name>.<VARIABLE> of a source of type env, or pass it to the executor as an input"


def loaded(source: Any, **sources: Json) -> StepSpec:
    """A step with this source, beside sources called secrets and api."""
    document = {
        "sources": {"secrets": SECRETS, "api": API, **sources},
        "steps": [{"id": "s", "source": source}],
    }
    return check_spec(document).spec.steps[0]


def configured(**configuration: Any) -> Json | None:
    return loaded({"type": "http", "configuration": configuration}).source


# ---- what a job carries


def test_a_configuration_without_expressions_carries_nothing_else() -> None:
    assert configured(url="u", list=[1, {"a": None}]) == {
        "type": "http",
        "configuration": {"url": "u", "list": [1, {"a": None}]},
    }


@pytest.mark.parametrize(
    ("value", "sources"),
    [
        (TOKEN, {"secrets": ["TOKEN", "USER"]}),
        ({"headers": [{"cat": ["Bearer ", TOKEN]}]}, {"secrets": ["TOKEN", "USER"]}),
        ({"var": "sources.secrets"}, {"secrets": ["TOKEN", "USER"]}),
        ({"var": ["sources.secrets.TOKEN", {"var": "sources.my.env.X"}]}, None),
        ({"vars": "$.sources['my.env'].*"}, {"my.env": ["X"]}),
        ({"var": "sources.my.env.X"}, {"my.env": ["X"]}),
        ({"cat": ["a", "b"]}, {}),
        ({"$literal": TOKEN}, {}),
        ({"map": [[{"n": 1, "m": 2}], {"var": "n"}]}, {}),
        ({"filter": [[TOKEN], {"missing": ["x"]}]}, {"secrets": ["TOKEN", "USER"]}),
    ],
)
def test_a_configuration_with_expressions_carries_the_names_of_the_variables(
    value: Any, sources: Json | None
) -> None:
    mine: Json = {"type": "env", "configuration": {"vars": ["X"]}}

    source = loaded({"type": "http", "configuration": {"key": value}}, **{"my.env": mine}).source

    assert source is not None
    both = {"secrets": ["TOKEN", "USER"], "my.env": ["X"]}
    assert source["sources"] == (both if sources is None else sources)


def test_a_change_of_a_source_carries_what_the_whole_of_it_reads() -> None:
    step = loaded(
        {"base": "secured", "override": {"url": "v"}},
        secured={"type": "http", "configuration": {"token": TOKEN}},
    )

    assert step.source == {
        "type": "http",
        "configuration": {"token": TOKEN, "url": "v"},
        "sources": {"secrets": ["TOKEN", "USER"]},
    }


def test_an_override_replaces_an_expression_and_does_not_mix_with_it() -> None:
    changed: Json = {"cat": ["x", TOKEN]}

    assert merge_configuration(
        {"a": TOKEN, "b": {"c": 1, "d": {"e": 2}}}, {"a": changed, "b": {"d": {"f": 3}}}
    ) == {
        "a": changed,
        "b": {"c": 1, "d": {"e": 2, "f": 3}},
    }
    assert merge_configuration({"a": {"x": 1}}, {"a": TOKEN}) == {"a": TOKEN}
    assert merge_configuration({"a": TOKEN}, {"a": {"x": 1}}) == {"a": {"x": 1}}
    assert merge_configuration({"a": {"$literal": {"x": 1}}}, {"a": {"x": 2}}) == {"a": {"x": 2}}
    assert merge_configuration({"max": 3}, {"max": {"y": 1}}) == {"max": {"y": 1}}, (
        "a configuration is no expression"
    )


# ---- what is refused


def problems_of(source: Any, **sources: Json) -> list[tuple[str, str, str, str | None]]:
    with pytest.raises(InvalidSpec) as refused:
        loaded(source, **sources)
    return [(one.path, one.code, one.message, one.hint) for one in refused.value.problems]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"var": "input.token"}, "'input'"),
        ({"var": "steps.a.output.x"}, "'steps'"),
        ({"var": ["state.x", 1]}, "'state'"),
        ({"vars": "ctx..now"}, "'ctx'"),
        ({"var": ""}, "all data"),
        ({"var": []}, "all data"),
        ({"vars": "$"}, "all data"),
        ({"var": 3}, "'3'"),
        ({"var": "sources"}, "all sources at once"),
        ({"vars": "sources.*.TOKEN"}, "all sources at once"),
        ({"var": {"cat": ["sources.", "secrets"]}}, "a computed path"),
        ({"missing": ["sources.secrets.TOKEN"]}, "what missing needs"),
        ({"kv.get": "x"}, "what kv.get needs"),
        ({"time.now": []}, "what time.now needs"),
    ],
)
def test_a_configuration_reads_nothing_but_the_environment(value: Json, what: str) -> None:
    [operator] = value
    place = f'["{operator}"]' if "." in operator else f".{operator}"

    assert problems_of({"type": "http", "configuration": {"a": [value]}}) == [
        (
            f"steps[0].source.configuration.a[0]{place}",
            "bad_path",
            f"cannot read {what} here: a source is configured on the worker",
            INSTEAD,
        )
    ]


@pytest.mark.parametrize(
    ("source", "path"),
    [
        (
            {"type": "x", "configuration": {"a": {"if": [True, {"var": "input.x"}]}}},
            "configuration.a.if[1].var",
        ),
        ({"base": "api", "override": {"type": "x", "a": {"var": "input.x"}}}, "override.a.var"),
        (
            {"base": "api", "override": {"configuration": {"a": {"var": "input.x"}}}},
            "override.configuration.a.var",
        ),
    ],
)
def test_the_problem_is_told_where_it_stands(source: Json, path: str) -> None:
    [(found, code, *_)] = problems_of(source)

    assert (found, code) == (f"steps[0].source.{path}", "bad_path")


def test_a_source_is_checked_where_it_is_defined_and_only_there() -> None:
    [(path, *_)] = problems_of("mine", mine={"type": "x", "configuration": {"a": {"var": "input.x"}}})

    assert path == "sources.mine.configuration.a.var"


@pytest.mark.parametrize(
    ("read", "code", "message", "hint"),
    [
        ("sources.secrts.TOKEN", "unknown_source", "there is no source 'secrts'", "did you mean 'secrets'?"),
        (
            "sources.x.TOKEN",
            "unknown_source",
            "there is no source 'x'",
            "define it under sources, of type env",
        ),
        (
            "sources.api.url",
            "unknown_source",
            "the source 'api' is of type http: only sources of type env can be read",
            None,
        ),
        (
            "sources.secrets.TOKN",
            "bad_path",
            "the source 'secrets' has no variable 'TOKN'",
            "did you mean 'TOKEN'?",
        ),
        ("sources.secrets.X", "bad_path", "the source 'secrets' has no variable 'X'", "add it to its vars"),
    ],
)
def test_what_is_read_must_have_been_declared(read: str, code: str, message: str, hint: str | None) -> None:
    problems = problems_of({"type": "http", "configuration": {"a": {"var": read}}})

    assert problems == [("steps[0].source.configuration.a.var", code, message, hint)]


def test_a_source_that_is_wrong_itself_is_not_reported_once_more_where_it_is_read() -> None:
    reads = {"type": "x", "configuration": {"a": {"var": "sources.bad.X"}}}

    problems = problems_of(reads, bad={"type": 3})
    others = problems_of(reads, bad={"type": "env", "configuration": {"vars": "X"}})

    assert [path for path, *_ in problems] == ["sources.bad.type"]
    assert [path for path, *_ in others] == ["sources.bad.configuration.vars"]


@pytest.mark.parametrize("variables", ["TOKEN", [3], [""], {"a": 1}, None])
def test_the_variables_of_a_source_are_a_list_of_names(variables: Any) -> None:
    problems = problems_of("mine", mine={"type": "env", "configuration": {"vars": variables}})

    assert problems == [
        (
            "sources.mine.configuration.vars",
            "bad_type",
            "must be a list of names of environment variables",
            None,
        )
    ]


def test_what_is_no_path_is_told_once() -> None:
    [(_, code, message, _)] = problems_of({"type": "x", "configuration": {"a": {"vars": "[["}}})

    assert code == "bad_path"
    assert "[[" in message
