"""The executor `env`: it reads only the variables that the worker allows."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator_executors.env import env
from orchestrator_executors.settings import ENV_VARIABLES, Refused, matches


@pytest.fixture(autouse=True)
def _an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_REGION", "eu")
    monkeypatch.setenv("SHOP_TOKEN", "secret")
    monkeypatch.delenv("SHOP_UNSET", raising=False)
    monkeypatch.setenv(ENV_VARIABLES, "SHOP_REGION, SHOP_UN*")


def test_variables_are_read_and_null_if_they_are_not_set() -> None:
    output = {"SHOP_REGION": "eu", "SHOP_UNSET": None}

    assert env({"vars": ["SHOP_REGION", "SHOP_UNSET"]}, {}) == output
    assert env({}, {"vars": ["SHOP_REGION", "SHOP_UNSET"]}) == output
    assert env({"vars": []}, {}) == {}


@pytest.mark.parametrize("name", ["SHOP_TOKEN", "shop_region", "SHOP_REGION2", "PATH", "*", "SHOP_*", ""])
def test_a_variable_that_is_not_allowed_is_rejected(name: str) -> None:
    with pytest.raises(
        Refused, match=f"is not allowed: {ENV_VARIABLES} of this worker does not list it"
    ) as caught:
        env({"vars": ["SHOP_REGION", name]}, {})
    assert caught.value.non_retryable


def test_without_a_list_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENV_VARIABLES)

    with pytest.raises(Refused, match=f"{ENV_VARIABLES} of this worker is not set"):
        env({"vars": ["SHOP_REGION"]}, {})


@pytest.mark.parametrize(
    ("inputs", "configuration", "said"),
    [
        ({}, {}, "'vars' must be a list of strings"),
        ({"vars": "HOME"}, {}, "'vars' must be a list of strings"),
        ({"vars": [1]}, {}, "'vars' must be a list of strings"),
        ({"var": ["HOME"]}, {}, "unknown setting 'var'; did you mean 'vars'"),
        ({"vars": ["HOME"]}, {"vars": ["SHOP_REGION"]}, "'vars' is fixed by the configuration"),
    ],
)
def test_wrong_settings_are_rejected_by_name(inputs: Any, configuration: Any, said: str) -> None:
    with pytest.raises(Refused, match=said):
        env(inputs, configuration)


@pytest.mark.parametrize(
    ("name", "patterns", "is_so"),
    [
        ("AB", ["AB"], True),
        ("AB", ["A*"], True),
        ("AB", ["*"], True),
        ("AB", ["*B"], True),
        ("ACCB", ["A*B"], True),
        ("AB", ["X", "AB"], True),
        ("AB", [], False),
        ("AB", ["A?"], False),
        ("AB", ["A[B]"], False),
        ("AB", ["A."], False),
        ("AB", ["ab"], False),
        ("ABC", ["AB"], False),
        ("AB\n", ["AB"], False),
    ],
)
def test_a_star_is_the_only_special_character(name: str, patterns: list[str], is_so: bool) -> None:
    assert matches(name, patterns) is is_so
