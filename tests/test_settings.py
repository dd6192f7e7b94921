"""Settings: the environment, read once, and refused with the variable's name."""

from __future__ import annotations

import pytest

from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.redis_rq.keys import Keys
from orchestrator.settings import BadSetting, Settings

ROUTES = TagRoutes(((frozenset({"gpu"}), "gpu-box"),), allows_unknown_tags=True)
NUMBERS = ["PARTITIONS", "LEASE_S", "GRACE_MS", "RETENTION_S", "MAX_BACKLOG", "MAX_QUEUED"]


def test_without_any_variable_everything_has_a_default() -> None:
    assert Settings.from_environment({}) == Settings()
    assert Settings().keys == Keys()


def test_every_setting_has_its_variable() -> None:
    found = Settings.from_environment(
        {
            "ORCHESTRATOR_REDIS_URL": "redis://elsewhere/1",
            "ORCHESTRATOR_PREFIX": "shop",
            "ORCHESTRATOR_EXECUTORS": "a.b, c ,,",
            "ORCHESTRATOR_PARTITIONS": "3",
            "ORCHESTRATOR_LEASE_S": "2.5",
            "ORCHESTRATOR_GRACE_MS": "100",
            "ORCHESTRATOR_RETENTION_S": "60",
            "ORCHESTRATOR_TAGS": "gpu=gpu-box, *",
            "ORCHESTRATOR_MAX_BACKLOG": "10",
            "ORCHESTRATOR_MAX_QUEUED": "20",
            "SOMETHING_ELSE": "x",
        }
    )
    assert found == Settings("redis://elsewhere/1", "shop", ("a.b", "c"), 3, 2.5, 100, 60, ROUTES, 10, 20)
    assert found.keys.queue("default") == "shop.default"


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["", "many", "0", "-1", "1e"])
def test_a_number_that_cannot_be_used_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(BadSetting, match=f"ORCHESTRATOR_{name}"):
        Settings.from_environment({f"ORCHESTRATOR_{name}": value})


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_lease_must_be_a_time(value: str) -> None:
    with pytest.raises(BadSetting):
        Settings.from_environment({"ORCHESTRATOR_LEASE_S": value})


def test_a_prefix_must_not_be_empty() -> None:
    with pytest.raises(BadSetting):
        Settings.from_environment({"ORCHESTRATOR_PREFIX": ""})


def test_a_table_of_tags_that_cannot_be_read_is_refused_by_its_name() -> None:
    with pytest.raises(BadSetting, match="ORCHESTRATOR_TAGS: 'gpu' is not an entry such as gpu=QUEUE"):
        Settings.from_environment({"ORCHESTRATOR_TAGS": "gpu"})
