"""Checks of the command lines and variables in files for deployment: they are what the real command takes."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pytest

from orchestrator.cli import main
from orchestrator.settings import Settings

ROOT = Path(__file__).parents[2]
OF_ANOTHER_EXTRA = {"exporter"}
"""Commands that are skipped where this version does not have them."""


def parse_command(words: Sequence[str]) -> click.Context:
    """The context of a command line, its options parsed as `orchestrator` does; nothing is run."""
    program, name, *arguments = words
    assert program == "orchestrator"
    with click.Context(main) as parent:
        command = main.get_command(parent, name)
        if command is None and name in OF_ANOTHER_EXTRA:
            pytest.skip(f"this version has no command {name!r}")
        assert command is not None, f"there is no command {name!r}"
        return command.make_context(name, list(arguments), parent)


def check_command(words: Sequence[str]) -> None:
    """The command exists and takes these arguments; click raises an error otherwise."""
    parse_command(words)


def known_variables() -> set[str]:
    """Every variable of docs/settings.md, whose own test compares it with the code."""
    return set(re.findall(r"^\| `(ORCHESTRATOR_\w+)`", (ROOT / "docs/settings.md").read_text(), re.M))


def check_variables(values: Mapping[str, str]) -> None:
    """Each variable is a setting, and its value can be used."""
    unknown = {name for name in values if name not in known_variables()}
    assert not unknown, f"no settings: {unknown}"
    settings = Settings.from_environment(values)
    for module in settings.executors:
        importlib.import_module(module)
