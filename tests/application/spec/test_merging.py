"""Several files as one document: the merged data, and the file, line and column of a problem."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.spec.document import find_owner, merge_documents, scan_documents
from orchestrator.application.spec.model import workflow_id
from orchestrator.application.spec.validation import check_spec, load_spec, load_specs
from orchestrator.application.values.document_limits import DocumentLimits
from orchestrator.application.values.paths import Path as DocumentPath
from orchestrator.cli import main
from orchestrator.cli.options import read_spec

NOWHERE = "unix:///nowhere/redis.sock"


def problems_of(*texts: str, limits: DocumentLimits | None = None) -> list[Problem]:
    """The problems of texts that are called a, b, c ..."""
    named = list(zip(texts, "abc", strict=False))
    load = load_specs if limits is None else partial(scan_documents, limits=limits)
    with pytest.raises(InvalidSpec) as refused:
        load(named)
    return list(refused.value.problems)


def positions_of(*texts: str) -> list[tuple[str | None, int | None, int | None, str]]:
    return [(found.source, found.line, found.column, found.path) for found in problems_of(*texts)]


# ---- merged data

KEYS = st.sampled_from("abc")
SCALARS = st.integers(0, 9) | st.lists(st.integers(0, 9), max_size=2)
MAPPINGS = st.dictionaries(
    KEYS,
    st.recursive(SCALARS, lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=8),
    max_size=3,
)
SECTIONS = st.fixed_dictionaries(  # a key is a mapping in all of them, or in none
    {}, optional={"a": SCALARS, "b": st.dictionaries(KEYS, SCALARS, max_size=3), "c": SCALARS}
)


@given(SECTIONS, SECTIONS, SECTIONS)
def test_merging_mappings_is_associative(
    left: dict[str, Any], middle: dict[str, Any], right: dict[str, Any]
) -> None:
    together = merge_documents([left, middle, right])

    assert merge_documents([merge_documents([left, middle]), right]) == together
    assert merge_documents([left, merge_documents([middle, right])]) == together


@given(MAPPINGS, MAPPINGS, MAPPINGS)
def test_files_are_merged_one_after_the_other_from_the_left(
    left: dict[str, Any], middle: dict[str, Any], right: dict[str, Any]
) -> None:
    assert merge_documents([merge_documents([left, middle]), right]) == merge_documents([left, middle, right])


def test_a_scalar_between_two_mappings_replaces_the_first() -> None:
    left, middle, right = {"a": {"x": 1}}, {"a": 0}, {"a": {"y": 2}}

    assert merge_documents([left, middle, right]) == {"a": {"y": 2}}
    assert merge_documents([left, merge_documents([middle, right])]) == {"a": {"x": 1, "y": 2}}


@given(MAPPINGS)
def test_an_empty_file_changes_nothing(document: dict[str, Any]) -> None:
    assert merge_documents([{}, document]) == merge_documents([document, {}]) == document


def test_the_workflow_is_that_of_the_merged_document() -> None:
    base = "name: w\ndefaults: {timeout: 5s, retry: 2}\nsteps: [{op: a}, {op: b}]"
    change = '{"defaults": {"retry": 0}, "steps": [{"op": "c"}]}'
    merged = {"name": "w", "defaults": {"timeout": "5s", "retry": 0}, "steps": [{"op": "c"}]}

    loaded = load_specs([(base, "base.yaml"), (change, "change.json")])

    assert loaded.document == merged
    assert loaded.workflow_id == workflow_id(merged) == check_spec(merged).workflow_id
    assert loaded.spec == check_spec(merged).spec


def test_one_file_is_loaded_as_usual() -> None:
    wrong = "steps: [{op: a, depends_on: [b]}]"
    with pytest.raises(InvalidSpec) as alone:
        load_spec(wrong, "w.yaml")

    with pytest.raises(InvalidSpec) as one_of_one:
        load_specs([(wrong, "w.yaml")])

    assert one_of_one.value.problems == alone.value.problems
    assert [problem.source for problem in alone.value.problems] == [None]
    assert str(one_of_one.value) == str(alone.value)
    assert load_specs([("steps: []", "w.yaml")]) == load_spec("steps: []", "w.yaml")


# ---- positions


def leaves(data: Any, path: DocumentPath = ()) -> Iterator[tuple[DocumentPath, Any]]:
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from leaves(value, (*path, key))
    else:
        yield path, data


def at(data: Any, path: DocumentPath) -> Any:
    for segment in path:
        data = data[segment]
    return data


@given(st.lists(MAPPINGS, min_size=1, max_size=4))
@example([{"a": {"b": 1}}, {"a": 2}, {"a": {"c": 3}}])
def test_each_value_has_its_position_in_the_file_it_comes_from(written: list[dict[str, Any]]) -> None:
    texts = [(yaml.safe_dump(data), str(n)) for n, data in enumerate(written)]

    merged, documents, _ = scan_documents(texts)

    for path, value in leaves(merged):
        owner = find_owner(path, documents)
        assert at(owner.data, path) == value
        line, column = owner.source_map.find(path) or (0, 0)
        rest = texts[int(owner.source or 0)][0].splitlines()[line - 1][column - 1 :]
        assert rest.startswith(("- ", "[]", "{}")) if not isinstance(value, int) else rest == str(value)


def test_a_problem_names_the_file_that_has_it_and_the_files_come_in_order() -> None:
    base = "namme: w\ndefaults:\n  timeout: soon\n  retry: 3\nsteps:\n  - {op: a, on_error: ignore}\n"
    change = "defaults:\n  retry: often\n  priorty: 1\nsteps:\n  - {op: b, depends_on: [c]}\n"

    assert positions_of(base, change) == [
        ("a", 1, 1, "namme"),
        ("a", 3, 12, "defaults.timeout"),
        ("b", 2, 10, "defaults.retry"),
        ("b", 3, 3, "defaults.priorty"),
        ("b", 5, 26, "steps[0].depends_on[0]"),
    ]


def test_the_text_of_a_problem_begins_with_its_file() -> None:
    with pytest.raises(InvalidSpec) as refused:
        load_specs([("steps: [{op: a}]", "a.yaml"), ("\nname: 3", "b.yaml")])

    assert str(refused.value) == (
        "b.yaml:2:7: name: must be a string, not the number 3; write it in quotes [bad_type]"
    )


def test_a_value_that_a_later_file_replaces_is_not_a_problem() -> None:
    loaded = load_specs([("name: 3\ntimeout: soon\nsteps: 5", "a"), ("name: w\ntimeout: 5s\nsteps: []", "b")])

    assert loaded.spec.name == "w"


def test_the_position_of_a_mapping_from_several_files_is_in_the_first() -> None:
    assert positions_of("x-a: 1\nrunner:\n  on_error: skip", "runner: {max_workers: 3}") == [
        ("a", 1, 1, "steps"),
    ]
    assert positions_of("steps: []", "\ninputs:\n  x: {type: 3}", "inputs: {x: {required: true}, y: 4}") == [
        ("b", 3, 13, "inputs.x.type"),
        ("c", 1, 34, "inputs.y"),
    ]


def test_a_mapping_that_replaces_a_scalar_has_its_own_position() -> None:
    assert positions_of("steps: []\nrunner: {on_error: 1}", "runner: 3", "\nrunner: {max_workers: 0}") == [
        ("c", 2, 23, "runner.max_workers")
    ]


def test_a_json_file_has_positions_too_if_it_is_also_yaml() -> None:
    readable = '{"name": 3}'
    unreadable = '{"name": 3, "description": "\\ud83d\\ude00"}'

    assert positions_of("steps: []", readable) == [("b", 1, 10, "name")]
    assert positions_of("steps: []", unreadable) == [("b", None, None, "name")]
    twice = '{"name": "\\ud83d\\ude00", "name": "w"}'
    assert positions_of(twice, "name: w\nsteps: []") == [("a", None, None, "name")]


def test_a_warning_names_its_file() -> None:
    text = "steps:\n  - {op: a, max_attempts: 3, attempts_on: any}\n"

    [warning] = load_specs([("name: w", "a"), (text, "b")]).warnings

    assert (warning.source, warning.line, warning.code) == ("b", 2, "repeats_on_success")


def test_merging_a_file_with_itself_changes_nothing() -> None:
    assert positions_of("name: 3\nsteps: []", "name: 3\nsteps: []") == [("b", 1, 7, "name")]


# ---- unreadable files


def test_every_unreadable_file_is_reported() -> None:
    found = problems_of("a: [1\nb: 2", "steps: []\nday: 2024-01-01", "a: *b")

    assert [(one.source, one.code, one.line) for one in found] == [
        ("a", "bad_yaml", 2),
        ("b", "not_json", 2),
        ("c", "bad_yaml", 1),
    ]


@pytest.mark.parametrize("text", ["", "[1]", "text", "3"])
def test_only_mappings_can_be_merged(text: str) -> None:
    [problem] = problems_of("steps: []", text)

    assert (problem.source, problem.code) == ("b", "bad_type")
    assert "must be a mapping" in problem.message


def test_a_key_may_occur_in_every_file_but_once_in_each() -> None:
    found = problems_of("name: a\nname: b\nsteps: []", '{"name": "c",\n "name": "d"}')

    assert [(one.source, one.code) for one in found] == [("a", "duplicate_key"), ("b", "duplicate_key")]
    assert [(one.line, one.column) for one in found] == [(2, 1), (2, 10)]
    assert load_specs([("name: a\nsteps: []", "a"), ("name: b", "b")]).spec.name == "b"


def test_a_value_that_is_not_json_is_a_problem_even_if_it_is_replaced_and_hides_no_other() -> None:
    date = "name: 2024-01-01\nsteps: []"

    assert positions_of(date, "x-a: 1") == [("a", 1, 7, "name")]
    assert positions_of(date, "name: w") == [("a", 1, 7, "name")]
    assert positions_of(date, "name: 3") == [("a", 1, 7, "name"), ("b", 1, 7, "name")]


# ---- limits


def test_limits_apply_to_each_file() -> None:
    deep = "a: [[[1]]]"

    [problem] = problems_of("x: 1", deep, limits=DocumentLimits(max_depth=3))

    assert (problem.source, problem.code, problem.line) == ("b", "too_deep", 1)
    [problem] = problems_of("x: 1", "a: [1, 2, 3]", limits=DocumentLimits(max_nodes=5))
    assert (problem.source, problem.code) == ("b", "too_big")


def test_the_limit_of_bytes_applies_to_all_files_together() -> None:
    texts = ["aaaa: 1", "bbbb: é", "cccc: 3"]

    assert len(scan_documents([(text, "f") for text in texts], DocumentLimits(max_bytes=22))[1]) == 3
    [problem] = problems_of(*texts, limits=DocumentLimits(max_bytes=21))
    assert (problem.source, problem.code) == ("c", "too_big")
    assert "those before it" in problem.message


def test_the_limit_of_nodes_applies_to_all_files_together() -> None:
    texts = [("a: &a [1, 2, 3]", "a"), ("b: &b [1, 2, 3]\nc: *b", "b")]  # the root, and three times 4

    assert len(scan_documents(texts, DocumentLimits(max_nodes=13))[0]) == 3
    with pytest.raises(InvalidSpec, match="more than 12 nodes"):
        scan_documents(texts, DocumentLimits(max_nodes=12))


def test_at_most_a_thousand_problems_of_many_files_are_reported() -> None:
    twice = "a: 1\n" * 600

    found = problems_of(twice, twice)

    assert len(found) == 1_001
    assert (found[-2].source, found[-1].code) == ("b", "too_big")


# ---- the commands


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("REDIS_URL", "PREFIX", "EXECUTORS"):
        monkeypatch.delenv(f"ORCHESTRATOR_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text("steps:\n  - {op: a, max_attempts: 3, attempts_on: any}\n")
    (tmp_path / "good.yaml").write_text("name: good")
    (tmp_path / "bad.yaml").write_text("defaults:\n  timeout: soon")
    return tmp_path


def orchestrator(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, prog_name="orchestrator")


@pytest.mark.parametrize("command", ["run", "start", "register"])
def test_a_problem_of_merged_files_ends_a_command_before_it_starts(folder: Path, command: str) -> None:
    result = orchestrator(command, "--merge", "base.yaml", "bad.yaml")

    assert result.exit_code == 2
    assert "\nbad.yaml:2:12: defaults.timeout: must be" in result.output


def test_validate_checks_each_file_by_itself_unless_told_to_merge(folder: Path) -> None:
    apart = orchestrator("validate", "base.yaml", "good.yaml")
    assert apart.exit_code == 2
    assert "good.yaml:1:1: steps: a workflow needs a list of steps" in apart.output

    merged = orchestrator("validate", "--merge", "base.yaml", "good.yaml")
    assert merged.exit_code == 0
    assert merged.output.splitlines() == [
        "base.yaml:2:27: steps[0].max_attempts: step 'a' runs 3 times even if it succeeds: no branch ends it "
        "[repeats_on_success] (warning)",
        "base.yaml + good.yaml: valid, 1 step",
    ]


def test_validate_shows_the_problems_of_merged_files_with_their_files(folder: Path) -> None:
    result = orchestrator("validate", "--merge", "--json", "base.yaml", "bad.yaml")

    assert result.exit_code == 2
    [told] = json.loads(result.output)
    assert (told["file"], told["valid"]) == ("base.yaml + bad.yaml", False)
    [problem] = told["problems"]
    assert (problem["source"], problem["line"], problem["column"]) == ("bad.yaml", 2, 12)
    shown = orchestrator("validate", "--merge", "base.yaml", "bad.yaml").output
    assert shown.startswith("bad.yaml:2:12: defaults.timeout: ")


@pytest.mark.parametrize("words", [["order", "base.yaml"], ["base.yaml", "order"], ["order", "other"]])
def test_a_registered_name_cannot_be_combined_with_files(folder: Path, words: list[str]) -> None:
    result = orchestrator("start", *words, "--redis-url", NOWHERE)

    assert result.exit_code == 2
    assert "'order' is not a file" in result.output


def test_merged_files_may_have_their_name_in_any_of_them(folder: Path) -> None:
    nameless = orchestrator("register", "--merge", "base.yaml", "base.yaml", "--redis-url", NOWHERE)
    assert nameless.exit_code == 2
    assert "base.yaml + base.yaml has no name" in nameless.output

    named = orchestrator("register", "--merge", "base.yaml", "good.yaml", "--redis-url", NOWHERE)
    assert (named.exit_code, "cannot use Redis" in named.output) == (1, True)


def test_warnings_of_merged_files_name_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert read_spec("good.yaml", "base.yaml").spec.name == "good"

    assert capsys.readouterr().err.startswith("base.yaml:2:27: ")


def test_one_of_the_files_may_be_the_standard_input(folder: Path) -> None:
    result = CliRunner().invoke(main, ["validate", "--merge", "base.yaml", "-"], input="name: 3")

    assert result.output.startswith("-:1:7: name: must be a string")
