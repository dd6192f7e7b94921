"""Reading a document: keys as text, JSON values only, limits, and positions."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.spec.document import check_data, read_document
from orchestrator.application.values.document_limits import DocumentLimits
from orchestrator.application.values.paths import parse_path, render_path


def problems_of(text: str, limits: DocumentLimits | None = None) -> tuple[Problem, ...]:
    with pytest.raises(InvalidSpec) as refused:
        read_document(text, "flow.yaml", limits or DocumentLimits())
    return refused.value.problems


def test_keys_are_their_source_text() -> None:
    data = read_document("on: on\n1: 1\nnull: ~\n2024-01-01: x\n1.50: y\n").data

    assert data == {"on": True, "1": 1, "null": None, "2024-01-01": "x", "1.50": "y"}


@pytest.mark.parametrize(
    "value",
    [
        "yes",
        "0x1F",
        "010",
        "1_000",
        "1:30",
        "1.5",
        "1e3",
        "~",
        "''",
        "'1'",
        "null",
        ".5",
        "- 1\n- [a, {b: c}]",
    ],
)
def test_values_follow_the_safe_loader(value: str) -> None:
    assert read_document(value).data == yaml.safe_load(value)


def test_a_lone_equals_sign_and_a_merge_sign_in_a_list_are_strings() -> None:
    assert read_document("[=, <<]").data == ["=", "<<"]


def test_merge_keys_give_way_to_the_keys_of_the_mapping() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {z: 3, <<: [*a, *b]}\nd: {'<<': 4}\n"

    data = read_document(text).data

    assert data["c"] == yaml.safe_load(text)["c"] == {"x": 1, "y": 1, "z": 3}
    assert data["d"] == {"<<": 4}


def test_an_alias_may_be_a_key() -> None:
    assert read_document("a: &k name\nb: {*k : 1}").data == {"a": "name", "b": {"name": 1}}


def test_an_empty_text_has_no_data() -> None:
    assert read_document("# nothing\n").data is None


@pytest.mark.parametrize(
    ("text", "code", "path", "line", "column", "message"),
    [
        ("a: 1\nb: {c: 1,\n    c: 2}", "duplicate_key", "b.c", 3, 5, "the key 'c' is written twice"),
        (
            "a:\n  - 2024-01-01",
            "not_json",
            "a[0]",
            2,
            5,
            'a date is not JSON; write it in quotes: "2024-01-01"',
        ),
        ("a: .nan", "not_json", "a", 1, 4, "nan is not JSON"),
        ("a: 1.0e+999", "not_json", "a", 1, 4, "inf is not JSON"),
        ("a: !!binary aGk=", "not_json", "a", 1, 4, "a value of type binary is not JSON"),
        ("a: !!set {x}", "not_json", "a", 1, 4, "a value of type set is not JSON"),
        ("a: !Thing {x: 1}", "not_json", "a", 1, 4, "a value of type !Thing is not JSON"),
        ("a: !!int x", "not_json", "a", 1, 4, "'x' cannot be read as int"),
        (
            "a: !!python/name:os.system ''",
            "not_json",
            "a",
            1,
            4,
            "a value of type python/name:os.system is not JSON",
        ),
        ("a: 0x" + "f" * 5_000, "not_json", "a", 1, 4, "most JSON parsers cannot read a number this long"),
        ("? [a]\n: 1", "not_json", "", 1, 3, "a key must be a string, not a collection"),
        ("x: &a [1]\n? *a\n: 1", "not_json", "", 2, 3, "a key must be a string, not a collection"),
        (
            "a: [1\nb: 2",
            "bad_yaml",
            "a[1]",
            2,
            2,
            "while parsing a flow sequence: did not find expected ',' or ']'",
        ),
        ("a: *b", "bad_yaml", "a", 1, 4, "the alias 'b' has no anchor before it"),
        ("a: 1\n---\nb: 1", "bad_yaml", "", 2, 1, "a second document begins here; only one is allowed"),
        ("a: 1\nb: \x01", "bad_yaml", "", 2, 4, "the text has a character that YAML does not allow"),
        ("<<: 3", "bad_yaml", "<<", 1, 5, "<< needs a mapping or a list of mappings"),
        ("a: &a [*a]", "too_deep", "a[0]", 1, 8, "the alias 'a' is inside its own anchor"),
    ],
)
def test_a_problem_says_what_and_where(
    text: str, code: str, path: str, line: int, column: int, message: str
) -> None:
    assert problems_of(text) == (Problem(path, code, message, None, line, column),)


def test_reading_goes_on_after_a_problem() -> None:
    codes = [problem.code for problem in problems_of("a: 2024-01-01\na: .inf\nb: 1\nb: 2")]

    assert codes == ["not_json", "duplicate_key", "not_json", "duplicate_key"]


def test_at_most_a_thousand_problems_are_reported() -> None:
    problems = problems_of("a: 1\n" * 5_000)

    assert [problem.line for problem in problems] == [*range(2, 1_002), None]
    assert problems[-1].code == "too_big"
    assert len(check_data([float("nan")] * 5_000)) == 1_001


def test_an_alias_bomb_is_rejected_before_it_expands() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]

    [problem] = problems_of("\n".join(lines))

    assert (problem.code, problem.line) == ("too_big", 6)


def test_aliases_count_each_time_they_are_used() -> None:
    text = "a: &a [1, 2, 3]\nb: [*a, *a]"  # the root; a and its 4; b, its list and twice 4

    assert read_document(text, limits=DocumentLimits(max_nodes=16)).data["b"] == [[1, 2, 3], [1, 2, 3]]
    assert [problem.code for problem in problems_of(text, DocumentLimits(max_nodes=15))] == ["too_big"]


def test_depth_counts_through_aliases() -> None:
    lines = ["a0: &a0 [1]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 60)]

    assert read_document("\n".join(lines[:49])).data["a48"]
    [problem] = problems_of("\n".join(lines[:50]))
    assert (problem.code, problem.line) == ("too_deep", 50)


@pytest.mark.parametrize("opening", ["[", "- ", '{"a":'])
def test_thousands_of_nested_collections_are_rejected(opening: str) -> None:
    [problem] = problems_of(opening * 3_000)

    assert problem.code == "too_deep"


def test_fifty_levels_are_allowed_in_yaml_and_in_json() -> None:
    def nested(levels: int) -> str:
        return '{"a":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"

    assert read_document(nested(50)).data["a"]
    assert read_document("# not JSON\n" + nested(50)).data["a"]
    assert [problem.code for problem in problems_of(nested(51))] == ["too_deep"]
    assert [problem.code for problem in problems_of("# not JSON\n" + nested(51))] == ["too_deep"]


def test_size_is_counted_in_bytes() -> None:
    limits = DocumentLimits(max_bytes=6)

    assert read_document("a: éa", limits=limits).data == {"a": "éa"}
    assert [problem.code for problem in problems_of("a: éé", limits)] == ["too_big"]


@pytest.mark.parametrize(
    ("text", "code", "path"),
    [
        ('{"a": 1, "a": 2}', "duplicate_key", "a"),
        ('{"a": [NaN]}', "not_json", "a[0]"),
        ('{"a": 1e999}', "not_json", "a"),
        ('{"a": "\\ud800"}', "not_json", "a"),
        ('{"a": ' + "9" * 5_000 + "}", "not_json", "a"),
        ('{"a": "\ud800"}', "not_json", ""),
    ],
)
def test_values_that_json_parsers_accept_but_json_does_not_have_are_rejected(
    text: str, code: str, path: str
) -> None:
    assert [(problem.code, problem.path) for problem in problems_of(text)] == [(code, path)]


def test_text_in_braces_that_is_not_json_is_yaml() -> None:
    assert read_document("{a: 1, b: [x]}").data == {"a": 1, "b": ["x"]}


def test_positions_are_those_of_values_of_keys_and_of_the_nearest_ancestor() -> None:
    source_map = read_document("name: x\nsteps:\n  - op: a\n    input: {k.v: [1, 2]}\n").source_map

    assert source_map.find("") == (1, 1)
    assert source_map.find("steps[0].op") == (3, 9)
    assert source_map.find("steps[0].op", of_key=True) == (3, 5)
    assert source_map.find('steps[0].input["k.v"][1]') == (4, 22)
    assert source_map.find("steps[0].input.k.v[1]") == (4, 22)
    assert source_map.find(("steps", 0, "input", "k.v", 0)) == (4, 19)
    assert source_map.find("steps[0].branch[1].action") == (3, 5)
    assert source_map.find("steps[7].op") == (3, 3)


def test_the_position_of_an_alias_is_its_use_and_that_of_its_content_the_anchor() -> None:
    source_map = read_document("a: &a {x: 1}\nb: *a\nc:\n  <<: *a\n").source_map

    assert source_map.find("b") == (2, 4)
    assert source_map.find("b.x") == source_map.find("c.x") == (1, 11)


def test_json_has_positions_too() -> None:
    source_map = read_document('{"steps": [\n  {"op": "a"}]}').source_map

    assert source_map.find("steps[0].op") == (2, 10)


def test_data_made_in_python_is_checked_like_json() -> None:
    endless: list[object] = []
    endless.append(endless)

    assert check_data({"a": [1, 2.5, None, True, "x"]}) == []
    strange = check_data({"a": {1: 2, "\ud800": 3, "é": 4}, "b": (1,), "c": [float("inf")]})
    assert sorted(problem.path for problem in strange) == ["a", "a", "b", "c[0]"]
    assert [problem.path for problem in check_data({1}, ("x",))] == ["x"]
    assert [problem.code for problem in check_data(endless)] == ["too_deep"]
    assert [problem.code for problem in check_data([0] * 1_000_000)] == ["too_big"]


SEGMENTS = st.text(min_size=1, max_size=5) | st.integers(0, 3)


@given(st.lists(SEGMENTS, max_size=6).map(tuple))
def test_a_rendered_path_can_be_read_back(path: tuple[str | int, ...]) -> None:
    data: object = "end"
    for segment in reversed(path):
        data = {segment: data, "other": 1} if isinstance(segment, str) else [data] * 4

    assert parse_path(render_path(path), data) == path
    assert parse_path(render_path((*path, "missing", "more")), data) == (*path, "missing")


NUMBERS = st.integers(-(2**64), 2**64) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_json_is_read_as_json_reads_it(data: dict[str, object]) -> None:
    assert read_document(json.dumps(data)).data == data


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_what_yaml_writes_is_read_back(data: dict[str, object]) -> None:
    text = yaml.safe_dump(data, allow_unicode=True, default_style='"')

    assert read_document(text).data == data


@given(st.text(alphabet=st.sampled_from("ab:-?&*!<>|[]{}\"'#%@,\n\t 01.~=_é"), max_size=40))
def test_any_text_is_read_or_rejected(text: str) -> None:
    try:
        data = read_document(text).data
    except InvalidSpec:
        return
    json.dumps(data, allow_nan=False)
