"""The executor `env`: reads environment variables of the worker.

    ORCHESTRATOR_ENV_VARIABLES   the variables that specs may read: names, or patterns such as SHOP_*,
                                 separated by commas; if unset, none

The values are an output like any other and are stored in Redis, so use it only for values that are not
secret. The worker redacts a variable whose name looks like that of a secret.
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
    """Return the variables named in `vars`; null for one that is not set."""
    settings = merge_settings(configuration, inputs, EnvInputs.__annotations__)
    names = check_string_list("vars", settings.get("vars"))
    for name in names:
        check_variable(name)
    return {name: os.environ.get(name) for name in names}
