"""docs/monitoring: a real Prometheus scrapes a real system, shows every panel, and raises its alerts."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import Keys
from processes import PatientClient, Stack, stack, wait_until
from servers.prometheus import Prometheus, require_program, run_prometheus
from worlds.documents import document, step
from worlds.page_users import WALL, bearer, write_users

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "docs" / "monitoring"
RULES: dict[str, Any] = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
KEYS = Keys()
VARIABLES = {"$__rate_interval": "1m", "$instance": ".*", "$workflow": ".*"}


def rules_at_once() -> dict[str, Any]:
    """The rules without the time for which a cause must last."""
    groups = [
        {**group, "rules": [{**rule, "for": "0s"} for rule in group["rules"]]} for group in RULES["groups"]
    ]
    return {"groups": groups}


def queries() -> list[tuple[str, str]]:
    """The title and the expression of each query of the dashboard, with the variables filled in."""
    found = []
    for panel in PANELS:
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            found.append((panel["title"], expression))
    return found


@pytest.fixture
def system(redis_url: str, tmp_path: Path) -> Iterator[Stack]:
    with stack(redis_url, "step_functions", tmp_path / "processes") as started:
        yield started


@pytest.fixture
def redis(redis_url: str) -> Iterator[Client]:
    with connect(redis_url) as client:
        yield client


def make_load(redis_url: str) -> None:
    """Executions that complete, fail and are retried, a schedule, and a slot of a concurrency key."""
    client = PatientClient(redis_url)
    added = step("nothing", concurrency={"key": "k", "limit": 1})
    client.register("nightly", document(added, name="nightly", schedule={"cron": "0 3 * * *"}))
    started = [client.start(document(added, name="order")) for _ in range(5)]
    started.append(client.start(document(step("fail", max_attempts=2), name="bad")))
    for one in started:
        client.wait(one.execution_id)


@pytest.mark.slow
def test_a_prometheus_shows_the_system_and_alerts_fire_for_their_causes(
    redis_url: str, redis: Client, system: Stack, tmp_path: Path
) -> None:
    coordinator, worker = system.coordinator(), system.worker()
    _, exporter = system.exporter()
    make_load(redis_url)
    with run_prometheus(tmp_path / "prometheus", rules_at_once(), exporter.removeprefix("http://")) as server:
        wait_until(lambda: _values(server, "count_over_time(orchestrator_up[1m])") >= 3)
        make_load(redis_url)
        wait_until(lambda: _values(server, "sum(orchestrator_executions_ended_total)") == 12)

        empty = [title for title, expression in queries() if not server.query(expression)]
        assert empty == [], "every panel has a series"
        assert server.query('sum(rate(orchestrator_steps_ended_total{status="complete"}[1m])) > 0')
        assert server.firing() == {}, "nothing is wrong"

        # A worker is gone, and a job has waited for an hour.
        worker.terminate()
        worker.wait()
        PatientClient(redis_url).start(document(step("nothing"), name="late"), execution_id="late")
        _make_old(redis, "late", "nothing")
        wait_until(lambda: {"OrchestratorNoWorker", "OrchestratorQueueWaits"} <= server.firing().keys())
        assert server.firing()["OrchestratorNoWorker"]["summary"] == "No worker serves the queue default"
        assert server.firing()["OrchestratorQueueWaits"]["severity"] == "ticket"

        # A start is rejected.
        redis.xadd(KEYS.starts, {"workflow": "unknown"})
        wait_until(lambda: "OrchestratorDeadLetters" in server.firing())

        # The only coordinator dies.
        assert "OrchestratorNoCoordinator" not in server.firing()
        system.kill(coordinator)
        wait_until(lambda: "OrchestratorNoCoordinator" in server.firing())

        # Both are back.
        system.coordinator()
        system.worker()
        gone = {"OrchestratorNoCoordinator", "OrchestratorNoWorker", "OrchestratorQueueWaits"}
        wait_until(lambda: not gone & server.firing().keys())


def _values(server: Prometheus, expression: str) -> float:
    return sum(float(one["value"][1]) for one in server.query(expression))


def _make_old(redis: Client, execution_id: str, step_id: str) -> None:
    """As if the job of a step had been dispatched long ago."""
    record = KEYS.workflow(str(redis.get(KEYS.execution(execution_id))))
    wait_until(lambda: "dispatched_at" in str(redis.hget(record, f"step:{step_id}")))
    stored = json.loads(str(redis.hget(record, f"step:{step_id}")))
    redis.hset(record, f"step:{step_id}", json.dumps({**stored, "dispatched_at": "2026-01-01T00:00:00.000Z"}))


def test_a_prometheus_reads_the_page_with_a_token(redis_url: str, system: Stack, tmp_path: Path) -> None:
    require_program("prometheus")
    _, page = system.web("--token-file", str(write_users(tmp_path)))
    token = bearer(WALL)["Authorization"].removeprefix("Bearer ")
    target = page.removeprefix("http://")

    with run_prometheus(
        tmp_path / "prometheus", {"groups": []}, target, authorization={"credentials": token}
    ) as server:
        wait_until(lambda: server.query("orchestrator_up == 1"))


# ---- promtool


@pytest.mark.parametrize(
    "command", ["check rules alerts.yaml", "test rules alerts.test.yaml", "check config prometheus.yml"]
)
def test_promtool_accepts_the_files(command: str) -> None:
    done = subprocess.run(
        [require_program("promtool"), *command.split()], cwd=MONITORING, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_every_alert_is_tested_for_when_it_fires() -> None:
    tests = yaml.safe_load((MONITORING / "alerts.test.yaml").read_text())["tests"]
    fired = {rule["alertname"] for test in tests for rule in test["alert_rule_test"] if rule["exp_alerts"]}

    assert fired == {rule["alert"] for rule in ALERTS}
    assert 5 <= len(fired) <= 8


def test_every_alert_names_a_section_that_says_what_to_do() -> None:
    sections = {
        _anchor(line) for line in (ROOT / "docs/operating.md").read_text().splitlines() if line[:1] == "#"
    }

    for rule in ALERTS:
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert page == "docs/operating.md"
        assert anchor in sections, rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket")


def _anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", heading.lstrip("# ").lower()).replace(" ", "-")


# ---- the dashboard


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]

    assert len(set(cells)) == len(cells)
    assert len(set(ids)) == len(ids)
    assert max(x for x, _ in cells) < 24


def test_every_query_of_the_dashboard_and_the_alerts_uses_metrics_that_are_documented() -> None:
    page = (ROOT / "docs/metrics.md").read_text()
    used = {
        name
        for text in [*(expression for _, expression in queries()), *(rule["expr"] for rule in ALERTS)]
        for name in re.findall(r"orchestrator_\w+", text)
    }

    unknown = {name for name in used if f"`{re.sub('_(bucket|sum|count)$', '', name)}`" not in page}
    assert unknown == set()
