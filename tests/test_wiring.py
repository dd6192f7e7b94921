"""Wiring: processes are built from settings, and what no process could use is rejected first."""

from __future__ import annotations

import pytest

from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.redis_rq.keys import Keys
from orchestrator.settings import BadSetting, Settings
from orchestrator.wiring import check_settings, make_keys, make_routes


def test_keys_have_the_prefix_and_the_partitions() -> None:
    assert make_keys(Settings()) == Keys()
    assert make_keys(Settings(prefix="shop")).queue("default") == "shop.default"
    assert make_keys(Settings(prefix="a:b")).starts == "a:b:starts"
    assert make_keys(Settings(partitions=3)) == Keys(partitions=3)


def test_routes_are_the_table_of_tags() -> None:
    routes = make_routes(Settings(tags="gpu=gpu-box, *"))

    assert routes == TagRoutes(((frozenset({"gpu"}), "gpu-box"),), allows_unknown_tags=True)


def test_the_defaults_are_accepted() -> None:
    check_settings(Settings())


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (Settings(prefix=""), "ORCHESTRATOR_PREFIX must have 1 to 64 letters"),
        (Settings(prefix="a b"), "ORCHESTRATOR_PREFIX must have 1 to 64 letters"),
        (Settings(tags="gpu"), "ORCHESTRATOR_TAGS: 'gpu' is not an entry such as gpu=QUEUE"),
        (Settings(payloads="ftp://x"), "ORCHESTRATOR_PAYLOADS must be redis, file:///"),
    ],
)
def test_a_setting_that_no_process_could_use_is_rejected_by_name(settings: Settings, problem: str) -> None:
    with pytest.raises(BadSetting, match=problem):
        check_settings(settings)
