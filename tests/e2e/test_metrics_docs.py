"""docs/metrics.md is correct: its commands work, and its tables have every metric and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from e2e.pages import blocks, reading
from metrics.test_gauges import loaded_system
from orchestrator.application.values.rejection_kinds import RejectionKind
from orchestrator.metrics.families import MAX_LABELS
from orchestrator.metrics.reader import MetricsReader
from orchestrator.redis_rq.scripts import script_text
from worlds.redis_world import RedisWorld

ROOT = Path(__file__).parents[2]
PAGE = "docs/metrics.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`orchestrator_[^|]*) \|([^|]*)\| ([^|]*) \|$", TEXT, re.M)


@pytest.mark.slow
def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        for block in blocks(TEXT):
            if block.treatment != "scrape":
                reader.do(block)


def test_every_block_of_it_is_tested() -> None:
    assert len(blocks(TEXT)) == TEXT.count("\n```") / 2
    assert not [block.line for block in blocks(TEXT) if not block.treatment]


def test_the_configuration_of_a_scrape_is_one() -> None:
    [block] = [one for one in blocks(TEXT) if one.treatment == "scrape"]

    [job] = yaml.safe_load(block.text)["scrape_configs"]

    assert job.keys() == {"job_name", "authorization", "static_configs"}


def test_the_tables_have_every_metric_with_its_labels(world: RedisWorld) -> None:
    loaded_system(world)
    own = {"histogram": {"le"}}
    found = {}
    for family in MetricsReader(world.client, world.keys).collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels}
        found[name] = labels - own.get(family.type, set())

    listed = {
        name: set(labels.strip().split(", ")) - {""}
        for names, labels, _ in ROWS
        for name in re.findall(r"`(\w+)`", names)
    }

    assert listed.keys() == found.keys()
    assert {name: listed[name] for name, labels in found.items() if labels and labels != listed[name]} == {}


def test_the_reasons_of_rejected_starts_are_listed() -> None:
    [row] = [text for names, _, text in ROWS if "starts_rejected" in names]

    assert set(re.findall(r"`(\w+)`", row)) == set(RejectionKind)


def test_the_limits_are_those_of_the_code() -> None:
    assert f"the first {MAX_LABELS} names of workflows" in TEXT
    assert f"MAX_LABELS, OTHER = {MAX_LABELS}," in script_text("commit_metrics")


def test_the_table_of_alerts_is_that_of_the_rules() -> None:
    rules = yaml.safe_load((ROOT / "docs/monitoring/alerts.yaml").read_text())["groups"][0]["rules"]
    rows = re.findall(r"^\| `(Orchestrator\w+)` \| .* \| (\w+) \|$", TEXT, re.M)

    assert dict(rows) == {rule["alert"]: rule["labels"]["severity"] for rule in rules}
