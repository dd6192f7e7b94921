"""Which options may stand beside --local, and what is said about the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from orchestrator.cli import main

FILE = "workflow.yaml"


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ORCHESTRATOR_REDIS_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / FILE).write_text("steps: [{op: echo}]")


def usage_error(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments, prog_name="orchestrator")
    assert result.exit_code == 2, result.output
    return result.stderr.partition("Error: ")[2].strip()


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        (("--redis-url", "redis://localhost"), "it runs without Redis"),
        (("--prefix", "other"), "has no keys and queues"),
        (("--workers", "2"), "use --threads N"),
        (("--show-redis",), "use --json"),
        (("--on-conflict", "fail"), "each run has a new id"),
        (("--priority", "1"), "it has no queues"),
    ],
)
def test_an_option_of_redis_is_rejected_with_the_reason(option: tuple[str, ...], advice: str) -> None:
    text = usage_error("run", FILE, "--local", *option)

    assert text.startswith(f"{option[0]} cannot be used with --local: ")
    assert advice in text


def test_a_redis_before_the_name_of_the_command_is_rejected_too() -> None:
    text = usage_error("--redis-url", "redis://localhost", "run", FILE, "--local")

    assert text.startswith("--redis-url cannot be used with --local")


@pytest.mark.parametrize("option", [("--db", "a.db"), ("--resume",), ("--threads", "2")])
def test_an_option_of_local_runs_needs_local(option: tuple[str, ...]) -> None:
    assert usage_error("run", FILE, *option) == f"{option[0]} needs --local"


@pytest.mark.parametrize("option", [("--resume",), ("--resume", "x"), ("--idempotency-root", "x")])
def test_what_must_be_kept_needs_a_file(option: tuple[str, ...]) -> None:
    files = () if option[0] == "--resume" else (FILE,)

    text = usage_error("run", *files, "--local", *option)

    assert text.startswith(f"{option[0]} needs --db FILE")
    assert text.endswith("without it nothing is kept")


@pytest.mark.parametrize(
    "option",
    [
        ("--inputs", "{}"),
        ("--merge",),
        ("--register", FILE),
        ("--label", "a=b"),
        ("--group", "x"),
        ("--idempotency-root", "x"),
        ("--webhook", "http://localhost/"),
    ],
)
def test_a_continuation_takes_nothing_of_a_start(option: tuple[str, ...]) -> None:
    text = usage_error("run", "--local", "--db", "a.db", "--resume", *option)

    assert text.startswith(f"{option[0]} cannot be used with --resume: an execution keeps the workflow")
    assert not Path("a.db").exists()


def test_a_continuation_takes_no_workflow_file() -> None:
    assert usage_error("run", FILE, "--local", "--db", "a.db", "--resume").startswith(
        f"{FILE} cannot be used"
    )


def test_a_run_without_a_file_is_wrong_usage() -> None:
    for local in ([], ["--local"]):
        assert usage_error("run", *local) == "Missing argument 'FILE...'."
