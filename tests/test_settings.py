"""Settings: the environment, read once. An error names the variable."""

from __future__ import annotations

from dataclasses import fields

import pytest

from orchestrator.settings import HISTORY, BadSetting, Settings, check_history_mode

NUMBERS = ["PARTITIONS", "LEASE_S", "STOP_GRACE_S", "GRACE_MS", "RETENTION_S", "MAX_BACKLOG", "MAX_QUEUED"]
WHOLE_NUMBERS = ["PAYLOAD_TTL_S", "PAYLOAD_MAX_BYTES"]


def test_without_any_variable_everything_has_a_default() -> None:
    assert Settings.from_environment({}) == Settings()


def test_every_setting_has_its_variable() -> None:
    environment = {
        "ORCHESTRATOR_REDIS_URL": "redis://elsewhere/1",
        "ORCHESTRATOR_PREFIX": "shop",
        "ORCHESTRATOR_EXECUTORS": "a.b, c ,,",
        "ORCHESTRATOR_PARTITIONS": "3",
        "ORCHESTRATOR_LEASE_S": "2.5",
        "ORCHESTRATOR_STOP_GRACE_S": "7.5",
        "ORCHESTRATOR_GRACE_MS": "100",
        "ORCHESTRATOR_RETENTION_S": "60",
        "ORCHESTRATOR_TAGS": "gpu=gpu-box, *",
        "ORCHESTRATOR_MAX_BACKLOG": "10",
        "ORCHESTRATOR_MAX_QUEUED": "20",
        "ORCHESTRATOR_PAYLOADS": "file:///payloads",
        "ORCHESTRATOR_PAYLOAD_TTL_S": "70",
        "ORCHESTRATOR_PAYLOAD_MAX_BYTES": " 7 ",
        "ORCHESTRATOR_S3_ENDPOINT": "http://s3",
        "ORCHESTRATOR_MAX_MEMORY": "2MB",
        "ORCHESTRATOR_NON_RETRYABLE": "KeyError, shop.Odd",
        "ORCHESTRATOR_HISTORY": "full",
        "ORCHESTRATOR_KEEP_PRINTS": "off",
        "SOMETHING_ELSE": "x",
    }

    assert Settings.from_environment(environment) == Settings(
        redis_url="redis://elsewhere/1",
        prefix="shop",
        executors=("a.b", "c"),
        partitions=3,
        lease_s=2.5,
        stop_grace_s=7.5,
        grace_ms=100,
        retention_s=60,
        tags="gpu=gpu-box, *",
        max_backlog=10,
        max_queued=20,
        payloads="file:///payloads",
        payload_ttl_s=70,
        payload_max_bytes=7,
        s3_endpoint="http://s3",
        max_memory=2 << 20,
        non_retryable=("KeyError", "shop.Odd"),
        keep_prints="off",
        history="full",
    )
    assert len(environment) == len(fields(Settings)), "a setting has no variable here"


def test_an_unknown_word_is_rejected_by_name_and_an_empty_one_is_the_default() -> None:
    with pytest.raises(BadSetting, match="ORCHESTRATOR_HISTORY must be moves or full, not 'all'"):
        Settings.from_environment({"ORCHESTRATOR_HISTORY": "all"})

    assert Settings.from_environment({"ORCHESTRATOR_HISTORY": " "}).history == HISTORY
    with pytest.raises(ValueError, match="history must be moves or full, not 'all'"):
        check_history_mode("all")


def test_payloads_are_kept_a_day_longer_than_executions() -> None:
    assert Settings.from_environment({"ORCHESTRATOR_RETENTION_S": "60"}).payload_ttl_s == 60 + 86_400


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["", "many", "0", "-1", "1e"])
def test_an_invalid_number_is_rejected_by_name(name: str, value: str) -> None:
    with pytest.raises(BadSetting, match=f"ORCHESTRATOR_{name}"):
        Settings.from_environment({f"ORCHESTRATOR_{name}": value})


@pytest.mark.parametrize("name", WHOLE_NUMBERS)
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "9" * 16, "²"])
def test_an_invalid_whole_number_is_rejected_by_name(name: str, value: str) -> None:
    with pytest.raises(BadSetting, match=f"ORCHESTRATOR_{name} must be a whole number above zero, not"):
        Settings.from_environment({f"ORCHESTRATOR_{name}": value})


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_lease_must_be_finite(value: str) -> None:
    with pytest.raises(BadSetting):
        Settings.from_environment({"ORCHESTRATOR_LEASE_S": value})


@pytest.mark.parametrize(
    ("value", "max_bytes"), [("", None), ("512", 512), ("2kb", 2048), ("3 MB", 3 << 20), ("1GB", 1 << 30)]
)
def test_a_memory_limit_may_have_a_unit(value: str, max_bytes: int | None) -> None:
    assert Settings.from_environment({"ORCHESTRATOR_MAX_MEMORY": value}).max_memory == max_bytes


@pytest.mark.parametrize("value", ["a lot", "0", "-1MB", "1TB"])
def test_an_invalid_memory_limit_is_rejected_by_name(value: str) -> None:
    with pytest.raises(BadSetting, match=r"ORCHESTRATOR_MAX_MEMORY is .*: write 512MB, 2GB or a number"):
        Settings.from_environment({"ORCHESTRATOR_MAX_MEMORY": value})


def test_a_caller_may_report_invalid_values_and_use_the_defaults() -> None:
    problems: list[BadSetting] = []

    found = Settings.from_environment(
        {"ORCHESTRATOR_LEASE_S": "long", "ORCHESTRATOR_MAX_MEMORY": "much", "ORCHESTRATOR_PREFIX": "shop"},
        on_bad=problems.append,
    )

    assert found == Settings(prefix="shop")
    assert [str(problem).split()[0] for problem in problems] == [
        "ORCHESTRATOR_LEASE_S",
        "ORCHESTRATOR_MAX_MEMORY",
    ]
