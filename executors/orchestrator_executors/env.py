"""Reads variables of the worker's environment: the executor `env`.

    ORCHESTRATOR_ENV_VARIABLES   which variables specs may read: names, or patterns such as SHOP_*,
                                 separated by commas; unset, none

What it returns is an output like any other, and kept in Redis: it is for values that are no secrets. One that
is called like a secret is hidden by the worker.
"""

from __future__ import annotations

import os
from typing import Any, TypedDict

from .settings import check_string_list, check_variable, merge_settings

__all__ = ["env"]


class EnvInputs(TypedDict, total=False):
    """`vars`: the names of the variables."""

    vars: list[str]


def env(inputs: EnvInputs, configuration: dict[str, Any]) -> dict[str, Any]:
    """The values of the variables named in `vars`; null for one that is not set."""
    names = check_string_list(
        "vars", merge_settings(configuration, inputs, EnvInputs.__annotations__).get("vars")
    )
    for name in names:
        check_variable(name, "the variable")
    return {name: os.environ.get(name) for name in names}
