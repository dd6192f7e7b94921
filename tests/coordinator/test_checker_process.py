"""ProcessChecker: large documents are checked in a process that can hang, die and be killed."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.errors import InvalidSpec
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import check_spec, load_spec, load_stored_spec
from orchestrator.coordinator.checker_child import check_document
from orchestrator.coordinator.checker_codec import dump_reply, load_reply
from orchestrator.coordinator.checker_process import ProcessChecker
from orchestrator.coordinator.large_document import LargeDocument
from orchestrator.coordinator.waiting_events import Checked, CheckFailed
from processes import is_running, wait_until
from slow_checker import DIE, GREEDY, HANG, WAIT

GOOD = "steps: [{op: a}, {op: b, depends_on: [a]}]"
EVERYTHING = """
name: everything
inputs: {x: {type: string, default: y}}
sources: {s: {type: http, configuration: {url: "http://localhost"}}}
concurrency: {key: {var: input.x}, limit: 2}
webhook: {url: "http://localhost/"}
schedule: {cron: "0 * * * *"}
kv: {scopes: [flow]}
steps:
  - {op: a, retry: {max_retries: 3}, input: {x: {var: input.x}}}
  - {op: h, branch: [{condition: true, action: complete}]}
  - {op: b, map: {over: [1, 2]}, depends_on: [a], compensate: {fn: c}}
  - {id: w, wait: {signal: go, timeout: 1h}}
  - {id: d, delay: 1s}
  - {id: l, op: l, loop: {max_iterations: 3}, branch: [{condition: false, action: retry}]}
  - {id: s, switch: {on: {var: input.x}, cases: {y: [t]}, default: []}}
  - {id: t, op: t}
  - {id: k, workflow: {steps: [{op: inner}]}}
  - {id: j, op: j, depends_on: [a, b], join: any}
"""


def asking(what: str) -> str:
    return f"description: '{what}'\n{GOOD}"


class Checks:
    """A checker whose child does what the documents ask for (tests/slow_checker.py)."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.checker = ProcessChecker((sys.executable, "-m", "slow_checker", str(folder)), **options)
        self._results: dict[LargeDocument, Checked] = {}

    def submit(self, text: str) -> None:
        self.checker.submit(LargeDocument(text))

    def result(self, document: LargeDocument) -> Checked:
        wait_until(lambda: self._collect(document), what=document.text)
        return self._results.pop(document)

    def check(self, text: str, is_stored: bool = False) -> Checked:
        document = LargeDocument(text, is_stored)
        self.checker.submit(document)
        return self.result(document)

    def pids(self) -> list[int]:
        path = self.folder / "pids"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def _collect(self, document: LargeDocument) -> bool:
        self._results.update(self.checker.finished())
        return document in self._results


@pytest.fixture
def checks(tmp_path: Path) -> Iterator[Checks]:
    made = Checks(tmp_path)
    yield made
    made.checker.close()


def problem_of(result: Checked) -> str:
    assert isinstance(result, InvalidSpec), result
    [problem] = result.problems
    assert problem.code == "too_big"
    assert problem.hint is not None
    return problem.message


def test_the_spec_is_the_same_as_in_this_process(checks: Checks) -> None:
    assert checks.check(EVERYTHING) == load_spec(EVERYTHING, with_warnings=False)


def test_a_stored_document_is_loaded_without_the_checks_of_new_ones(checks: Checks) -> None:
    old = json.dumps({"steps": [{"op": "a"}], "outputs": {"x": {"var": "steps.nowhere.output"}}})

    assert isinstance(checks.check(old), InvalidSpec)
    assert checks.check(old, is_stored=True) == load_stored_spec(json.loads(old))


def test_one_child_checks_all_documents(checks: Checks) -> None:
    for n in range(3):
        assert isinstance(checks.check(f"name: n{n}\n{GOOD}"), LoadedSpec)

    assert len(set(checks.pids())) == 1


def test_the_problems_are_the_same_as_in_this_process(checks: Checks) -> None:
    text = "steps:\n  - {op: a, depends_on: [b]}\n  - {op: a}"
    with pytest.raises(InvalidSpec) as expected:
        load_spec(text)

    result = checks.check(text)

    assert isinstance(result, InvalidSpec)
    assert result.problems == expected.value.problems


def test_a_document_that_takes_too_long_is_rejected_and_the_next_one_is_checked(tmp_path: Path) -> None:
    checks = Checks(tmp_path, deadline_s=5.0)  # on a busy machine the next one takes a while, too
    try:
        assert "could not be checked within 5 s" in problem_of(checks.check(asking(HANG)))
        assert not any(map(is_running, checks.pids()))
        checks.checker._deadline_s = 180.0
        assert isinstance(checks.check(GOOD), LoadedSpec)
    finally:
        checks.checker.close()


def test_a_document_that_kills_its_checker_twice_is_rejected(checks: Checks) -> None:
    message = problem_of(checks.check(asking(DIE)))

    assert message == "the process that checks documents died 2 times on this one (signal SIGKILL)"
    assert isinstance(checks.check(GOOD), LoadedSpec)


def test_a_check_whose_process_is_killed_from_outside_is_repeated(checks: Checks) -> None:
    text = asking(WAIT)
    checks.submit(text)
    wait_until(checks.pids)

    os.kill(checks.pids()[0], signal.SIGKILL)
    wait_until(lambda: len(checks.pids()) == 2)
    (checks.folder / "go").touch()

    assert isinstance(checks.result(LargeDocument(text)), LoadedSpec)


def test_a_document_that_needs_too_much_memory_is_rejected(tmp_path: Path) -> None:
    checks = Checks(tmp_path, max_memory=1024**3)
    try:
        message = problem_of(checks.check(asking(GREEDY)))
        assert message == "the document could not be checked within 1,024 MiB of memory"
        assert isinstance(checks.check(GOOD), LoadedSpec)
        assert len(set(checks.pids())) == 1
    finally:
        checks.checker.close()


def test_a_child_that_cannot_be_started_fails_the_check() -> None:
    checker = ProcessChecker(("/nowhere/python",))
    checker.submit(LargeDocument(GOOD))
    found: list[tuple[LargeDocument, Checked]] = []

    def is_found() -> bool:
        found.extend(checker.finished())
        return bool(found)

    wait_until(is_found)
    [(document, result)] = found
    assert document == LargeDocument(GOOD)
    assert isinstance(result, CheckFailed)
    assert "FileNotFoundError" in str(result)


def test_closing_ends_the_child_in_the_middle_of_a_check(checks: Checks) -> None:
    checks.submit(asking(HANG))
    wait_until(checks.pids)

    checks.checker.close()

    wait_until(lambda: not is_running(checks.pids()[0]))
    assert checks.checker.finished() == []


def test_an_error_that_is_not_expected_is_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str, **_: Any) -> LoadedSpec:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("orchestrator.coordinator.large_document.load_spec", fail)

    assert check_document(LargeDocument(GOOD)) == "ZeroDivisionError: a defect"


@pytest.mark.parametrize("foreign", [os.system, Path("x"), eval, getattr, ZeroDivisionError("x")])
def test_nothing_but_a_spec_is_unpickled(foreign: Any) -> None:
    loaded = check_spec({"steps": [{"op": "a"}]})
    assert load_reply(dump_reply(loaded)) == loaded

    with pytest.raises(pickle.UnpicklingError, match="is not a part of a spec"):
        load_reply(pickle.dumps((loaded, foreign)))
