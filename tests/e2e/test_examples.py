"""The examples in docs/examples: documents are valid, their own tests pass, and each runs on a real Redis."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.records.decisions import Complete, Failed
from processes import ROOT, PatientClient, Stack, run_module, stack, start_module
from pytest_runs import install_plugin, run_pytest
from servers.redis_server import own_redis
from servers.web import Asked, Reply, site

EXAMPLES = ROOT / "docs" / "examples"
MODULES = {
    "agent-loop": "agent_loop",
    "cron-backfill": "daily_usage",
    "data-import": "data_import",
    "image-pipeline": "image_pipeline",
    "model-training": "model_training",
    "nightly-report": "nightly_report",
    "order-with-approval": "order_with_approval",
    "web-scraper": "web_scraper",
}
"""The module of the executors of each example."""
PATIENCE_S = 180.0


def environment(**variables: str) -> dict[str, str]:
    path = [str(ROOT), *(str(EXAMPLES / folder) for folder in MODULES)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **variables}


def documents(folder: str) -> list[str]:
    """The workflows of an example: its YAML files, or the module with its workflow function."""
    found = sorted(str(path) for path in (EXAMPLES / folder).glob("*.yaml"))
    return found or [str(EXAMPLES / folder / f"{MODULES[folder]}.py")]


# ---- without Redis


def test_every_folder_with_a_readme_is_an_example() -> None:
    assert sorted(path.parent.name for path in EXAMPLES.glob("*/README.md")) == list(MODULES)


@pytest.mark.parametrize("folder", MODULES)
def test_the_documents_are_valid_and_without_warnings(folder: str, tmp_path: Path) -> None:
    command = ["orchestrator", "validate", *documents(folder), "--executors", MODULES[folder]]

    run = run_module(command, environment(), tmp_path, timeout_s=PATIENCE_S)

    assert run.returncode == 0, run.stdout
    assert all(re.fullmatch(r"\S+: valid, \d+ steps", line) for line in run.stdout.splitlines()), run.stdout


@pytest.mark.slow
def test_the_tests_of_the_examples_pass(tmp_path: Path) -> None:
    install_plugin(tmp_path)
    files = [str(path) for folder in MODULES for path in (EXAMPLES / folder).glob("test_*.py")]
    count = sum(Path(file).read_text(encoding="utf-8").count("\ndef test_") for file in files)

    run = run_pytest(tmp_path, "-q", *files)

    assert run.returncode == 0, run.stdout + run.stderr
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed is not None
    assert len(files) == len(MODULES)
    assert int(passed[1]) >= count


# ---- on Redis


@dataclass
class System:
    """A worker with the executors of all examples, in a folder for their files, and a client."""

    client: PatientClient
    processes: Stack
    folder: Path
    url: str

    def run(self, *command: str) -> str:
        """Run a module of the examples, or a command, and return what it printed."""
        run = run_module(
            command, environment(ORCHESTRATOR_REDIS_URL=self.url), self.folder, timeout_s=PATIENCE_S
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    def outcome(self, execution: str) -> Any:
        decision = self.client.wait(execution, PATIENCE_S)
        assert isinstance(decision, Complete), f"{decision}\n{self.processes.log()}"
        return decision.outcome

    def rows(self, database: str, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / database)) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("examples")
    with own_redis(folder) as server, stack(server.url, "", folder / "logs") as processes:
        processes.coordinator()
        processes.processes.append(start_worker(server.url, folder))
        client = PatientClient(server.url)
        made = System(client, processes, folder, server.url)
        made.run("orchestrator", "register", *(file for folder in MODULES for file in documents(folder)))
        yield made


def start_worker(url: str, folder: Path) -> subprocess.Popen[Any]:
    variables = {
        "ORCHESTRATOR_REDIS_URL": url,
        "ORCHESTRATOR_EXECUTORS": ",".join(MODULES.values()),
        "ORCHESTRATOR_HTTP_HOSTS": "127.0.0.1",
        "ORCHESTRATOR_SECRET_BANK_API_KEY": "key-of-the-bank",
        "ORCHESTRATOR_SECRET_MODEL_API_KEY": "key-of-the-model",
    }
    with (folder / "logs" / "worker.log").open("wb") as log:
        command = ["orchestrator", "worker", "default", "gpu"]
        return start_module(command, environment(**variables), folder, log)


def test_an_order_is_approved_paid_and_shipped(system: System) -> None:
    inputs = {"sku": "desk", "quantity": 1, "amount": 900, "card": "card-1"}
    system.client.start("order", inputs, "order-1")

    system.client.signal("order-1", "approve", {"by": "ada"})
    system.client.signal("order-1:ship:0", "handed_over")

    assert system.outcome("order-1")["approved_by"] == "ada"
    assert system.rows("shop.db", "SELECT * FROM payments") == [("order-1#charge#0", 900.0, 0)]
    assert len(system.rows("shop.db", "SELECT * FROM mails")) == 1


def test_a_declined_order_gives_back_its_stock(system: System) -> None:
    inputs = {"sku": "desk", "quantity": 3, "amount": 2700, "card": "card-1"}
    system.client.start("order", inputs, "order-2")

    system.client.signal("order-2", "decline", {"by": "ada"})

    decision = system.client.wait("order-2", PATIENCE_S)
    assert isinstance(decision, Failed), system.processes.log()
    assert decision.error["message"] == "not approved: decline (ada)"
    reserved = system.rows("shop.db", "SELECT * FROM reservations WHERE key LIKE 'order-2%'")
    assert reserved == []


def test_a_night_is_reported(system: System) -> None:
    system.run("fake_office")

    system.client.start("nightly-report", {}, "nightly-report:20260301T233000Z")

    assert system.outcome("nightly-report:20260301T233000Z")["total"] == 2050
    assert (system.folder / "reports" / "2026-03-01.csv").read_text().endswith("rome,800\n")


def test_pictures_become_thumbnails(system: System) -> None:
    system.run("image_pipeline")

    system.client.start("image-pipeline", {"source": "pictures", "target": "thumbnails"}, "images-1")

    outcome = system.outcome("images-1")
    assert (outcome["made"], list(outcome["broken"])) == (3, ["torn.ppm"])
    assert len(list((system.folder / "thumbnails").glob("*.ppm"))) == 3


def test_a_site_is_scraped(system: System) -> None:
    def answer(asked: Asked) -> Reply:
        html = f"<title>{asked.path}</title>".encode()
        return Reply(404 if asked.path == "/gone" else 200, html, {"Content-Type": "text/html"})

    with site(answer) as web:
        inputs = {"site": web.url, "paths": ["one", "gone", "two"]}
        system.client.start("web-scraper", inputs, "scrape-1")

        assert system.outcome("scrape-1") == {"stored": 2, "failed": 1}

    assert sorted(asked.path for asked in web.asked) == ["/gone", "/one", "/two"]
    assert system.rows("pages.db", "SELECT title FROM pages ORDER BY title") == [("/one",), ("/two",)]


def test_a_model_is_trained_and_promoted(system: System) -> None:
    system.run("model_training")

    system.client.start("model-training", {"dataset": "points.csv", "epochs": 200}, "training-1")

    outcome = system.outcome("training-1")
    assert outcome["production"] == outcome["model"] == "models/training-1-train-0.model"
    assert (system.folder / "models" / "production").read_text() == outcome["model"]


def test_an_agent_refunds_what_a_human_approves(system: System) -> None:
    system.client.start("support-agent", {"request": "Please refund order 17."}, "agent-1")

    system.client.signal("agent-1", "approve", {"by": "ada", "round": 2})

    outcome = system.outcome("agent-1")
    assert (outcome["answer"], outcome["rounds"]) == ("49 EUR for order 17 are on their way.", 3)
    assert [row[1:] for row in system.rows("support.db", "SELECT * FROM refunds")] == [(17, 49.0)]


def test_customers_are_imported(system: System) -> None:
    (system.folder / "customers.csv").write_text("email,name\nada@example.org,Ada\neve@example.org,Eve\n")

    system.client.start("data-import", {"file": "customers.csv"}, "import-1")

    assert system.outcome("import-1") == {"published": 2, "bad": 0}
    assert len(system.rows("warehouse.db", "SELECT * FROM customers")) == 2
    assert system.rows("warehouse.db", "SELECT * FROM staging") == []


def test_a_backfill_starts_each_day_once(system: System) -> None:
    system.run("daily_usage")

    first = system.run("backfill", "2026-02-27", "2026-03-01")
    second = system.run("backfill", "2026-02-26", "2026-03-01")

    assert (first, second) == ("3 of 3 days started, 0 failed\n", "1 of 4 days started, 0 failed\n")
    for slot in ("20260227", "20260228", "20260301", "20260302"):
        system.outcome(f"daily-usage:{slot}T011500Z")
    days = ["2026-02-27", "2026-02-28", "2026-03-01"]
    past = "SELECT * FROM usage WHERE day < '2026-04'"
    assert system.rows("usage.db", past) == [(day, "acme", 60) for day in days]
