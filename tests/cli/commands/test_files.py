"""Commands that take workflow files: --merge means the same in each, and warnings never stop one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.application.errors import RecordNotFound
from orchestrator.cli import main
from worlds.redis_world import RedisWorld, running

Command = Callable[..., Result]

ENDLESS = "name: endless\nsteps:\n  - {id: w, wait: {signal: go}}\n"
WARNING = "endless.yaml:3:19: steps[0].wait: no timeout ends the wait for 'go'"


@pytest.fixture
def command(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    files = {
        "a.yaml": "name: a\nsteps: [{op: one}]",
        "b.yaml": "name: b\nsteps: [{op: two}]",
        "twin.yaml": "name: a\nsteps: [{op: three}]",
        "bad.yaml": "name: bad\nsteps: [{op: x, input: {y: {var: inputs.y}}}]",
        "worse.yaml": "name: worse\nsteps: 5",
        "endless.yaml": ENDLESS,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def run(*words: str, exit_code: int = 0) -> Result:
        result = CliRunner().invoke(main, [*words, "--redis-url", redis_url])
        assert result.exit_code == exit_code, result.output
        return result

    return run


def registered(world: RedisWorld) -> dict[str, list[str]]:
    """The registered names, and the steps of each."""
    names = world.client.hkeys(world.keys.definitions)
    return {str(name): list(world.store.load_definition(str(name)).graph.order) for name in names}


# ---- register


def test_each_file_is_registered_as_a_workflow_of_its_own(world: RedisWorld, command: Command) -> None:
    result = command("register", "a.yaml", "b.yaml")

    assert [line.partition(" is now ")[0] for line in result.stdout.splitlines()] == ["a", "b"]
    assert registered(world) == {"a": ["one"], "b": ["two"]}


def test_merged_files_are_registered_as_one_workflow(world: RedisWorld, command: Command) -> None:
    command("register", "--merge", "a.yaml", "b.yaml")

    assert registered(world) == {"b": ["two"]}


def test_the_json_of_one_workflow_is_an_object_and_of_several_a_list(
    world: RedisWorld, command: Command
) -> None:
    one = json.loads(command("register", "a.yaml", "--json").stdout)
    several = json.loads(command("register", "a.yaml", "b.yaml", "--json").stdout)
    merged = json.loads(command("register", "--merge", "a.yaml", "b.yaml", "--json").stdout)

    assert (one["name"], [each["name"] for each in several], merged["name"]) == ("a", ["a", "b"], "b")
    assert several[0] == one


def test_nothing_is_registered_if_a_file_is_invalid_and_all_problems_are_shown(
    world: RedisWorld, command: Command
) -> None:
    result = command("register", "a.yaml", "bad.yaml", "worse.yaml", exit_code=2)

    assert "bad.yaml:2:34: steps[0].input.y.var: 'inputs' is not a root" in result.stderr
    assert "worse.yaml:2:8: steps: must be a list" in result.stderr
    assert registered(world) == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.yaml", "twin.yaml"], "two files have the name 'a': rename one, or merge them"),
        (["a.yaml", "b.yaml", "--name", "c"], "--name is for one workflow: give one file, or merge"),
    ],
)
def test_files_that_cannot_be_registered_apart_are_rejected(
    world: RedisWorld, command: Command, words: list[str], message: str
) -> None:
    result = command("register", *words, exit_code=2)

    assert message in result.stderr
    assert registered(world) == {}


def test_merged_files_may_get_a_name(world: RedisWorld, command: Command) -> None:
    command("register", "--merge", "a.yaml", "b.yaml", "--name", "c")

    assert registered(world) == {"c": ["two"]}


# ---- commands that take one workflow


@pytest.mark.parametrize(
    "words",
    [
        ["run", "a.yaml", "b.yaml"],
        ["start", "a.yaml", "b.yaml"],
        ["graph", "a.yaml", "b.yaml"],
        ["what-if", "e-1", "--spec", "a.yaml", "--spec", "b.yaml"],
    ],
)
def test_a_command_for_one_workflow_merges_nothing_silently(
    world: RedisWorld, command: Command, words: list[str]
) -> None:
    result = command(*words, exit_code=2)

    assert "a.yaml, b.yaml are 2 files, and this command takes one workflow" in result.stderr
    assert "--merge" in result.stderr


def test_merged_files_are_started_and_drawn_as_one_workflow(world: RedisWorld, command: Command) -> None:
    graph = command("graph", "--merge", "a.yaml", "b.yaml", "--json")
    with running(world.coordinator("one", world.connect(), block_ms=20)):
        command("start", "--merge", "a.yaml", "b.yaml", "--execution-id", "e-1")
        same = command("what-if", "e-1", "--merge", "--spec", "a.yaml", "--spec", "b.yaml", "--json")

    assert json.loads(graph.stdout)["name"] == "b"
    assert list(world.record("e-1").steps) == ["two"]
    assert json.loads(same.stdout)["same"] is True


# ---- warnings


def test_a_document_with_warnings_is_valid(command: Command) -> None:
    runner = CliRunner()

    shown = runner.invoke(main, ["validate", "endless.yaml"])
    told = json.loads(runner.invoke(main, ["validate", "endless.yaml", "--json"]).stdout)

    assert shown.exit_code == 0
    assert shown.stdout.startswith(WARNING)
    assert shown.stdout.splitlines()[-1] == "endless.yaml: valid, 1 step"
    [warning] = told[0]["warnings"]
    assert (told[0]["valid"], warning["code"], warning["path"]) == (True, "endless_wait", "steps[0].wait")
    assert (warning["line"], warning["column"]) == (3, 19)
    assert warning["hint"].startswith("write wait.timeout")


def test_an_invalid_document_shows_its_warnings_too(command: Command, tmp_path: Path) -> None:
    text = "inputs: {a: {}}\nsteps: []\noutputs: {x: {var: input.b}, y: {var: inputs.a}}"
    (tmp_path / "both.yaml").write_text(text)

    shown = CliRunner().invoke(main, ["validate", "both.yaml"])

    assert shown.exit_code == 2
    codes = [line.rpartition(" [")[2] for line in shown.stdout.splitlines()]
    assert codes == ["unknown_root]", "undeclared_input] (warning)"]


def test_register_and_start_print_warnings_and_go_on(world: RedisWorld, command: Command) -> None:
    with running(world.coordinator("one", world.connect(), block_ms=20)):
        stored = command("register", "endless.yaml")
        started = command("start", "endless.yaml", "--execution-id", "e-1")

    assert stored.stderr.startswith(WARNING)
    assert started.stderr.startswith(WARNING)
    assert started.stdout == "e-1\n"
    assert registered(world) == {"endless": ["w"]}
    assert world.status(world.store.full_id("e-1")) == "in_progress"


def test_a_start_of_an_invalid_file_starts_nothing(world: RedisWorld, command: Command) -> None:
    result = command("start", "bad.yaml", "--execution-id", "e-1", exit_code=2)

    assert "did you mean 'input.y'? [unknown_root]" in result.stderr
    with pytest.raises(RecordNotFound):
        world.store.full_id("e-1")
