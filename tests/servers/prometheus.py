"""A real Prometheus for a test, and promtool, which comes with it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from processes import PATIENCE_S, wait_until
from servers.ports import free_ports

INTERVAL = "200ms"


def require_program(name: str) -> str:
    """The path of `prometheus` or `promtool`. The test is skipped where there is none, unless it must run."""
    found = shutil.which(name)
    if found is not None:
        return found
    if os.environ.get("CI") or os.environ.get("ORCHESTRATOR_REQUIRE_PROMETHEUS"):
        pytest.fail(f"no {name} on the PATH", pytrace=False)
    pytest.skip(f"no {name} on the PATH: apt-get install prometheus")


@dataclass(frozen=True)
class Prometheus:
    url: str
    log: Path

    def get(self, path: str, **parameters: str) -> Any:
        response = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=60, trust_env=False)
        found = response.json()
        assert found["status"] == "success", f"{parameters}: {found.get('error')}"
        return found["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def firing(self) -> dict[str, dict[str, str]]:
        """The labels of each alert that fires, by its name."""
        alerts = self.get("alerts")["alerts"]
        return {
            one["labels"]["alertname"]: one["labels"] | one["annotations"]
            for one in alerts
            if one["state"] == "firing"
        }


@contextmanager
def run_prometheus(folder: Path, rules: dict[str, Any], *targets: str, **job: Any) -> Iterator[Prometheus]:
    """A Prometheus that scrapes these targets and evaluates the rules, both several times in a second."""
    [port] = free_ports(1)
    folder.mkdir()
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    config = {
        "global": {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {"job_name": "orchestrator", "static_configs": [{"targets": list(targets)}], **job}
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        require_program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    log = folder / "prometheus.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
    server = Prometheus(f"http://127.0.0.1:{port}", log)
    try:
        wait_until(lambda: process.poll() is not None or _is_ready(server), what=log.read_text())
        assert process.poll() is None, log.read_text()
        yield server
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _is_ready(server: Prometheus) -> bool:
    try:
        return httpx.get(f"{server.url}/-/ready", timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
