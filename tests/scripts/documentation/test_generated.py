"""The generated pages name everything that the code has."""

from __future__ import annotations

import inspect
import re
from importlib import import_module

import click
import pytest

from orchestrator.cli import main
from orchestrator.web.api.routes import API_ROUTES
from scripts.documentation.cli_reference import render_cli, walk
from scripts.documentation.http_reference import render_http
from scripts.documentation.python_reference import PACKAGES, members_of, public_names, render_python

PYTHON = render_python()


def test_every_command_has_a_section_with_all_of_its_options() -> None:
    sections = dict(re.findall(r"^## (orchestrator.*?)\n(.*?)(?=^## |\Z)", render_cli(), re.M | re.S))
    commands = {
        context.command_path: command
        for context, command in walk(main, click.Context(main, info_name="orchestrator"))
    }

    assert list(sections) == list(commands)
    assert "orchestrator dead-letters list" in sections
    for path, command in commands.items():
        options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
        assert [name for one in options for name in one.opts if name not in sections[path]] == [], path


def test_a_hidden_command_has_no_section() -> None:
    group = click.Group("root", commands=[click.Command("seen"), click.Command("hidden", hidden=True)])

    found = [context.command_path for context, _ in walk(group, click.Context(group, info_name="root"))]

    assert found == ["root", "root seen"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_has_a_section(package: str) -> None:
    names = public_names(import_module(package))

    assert names
    assert [name for name in names if f"\n### {package}.{name}\n" not in PYTHON] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_class_and_function_has_a_docstring(package: str) -> None:
    module = import_module(package)
    exported = {name: getattr(module, name) for name in public_names(module)}
    described = {
        name: one for name, one in exported.items() if inspect.isclass(one) or inspect.isfunction(one)
    }

    assert described
    assert [name for name, one in described.items() if not inspect.getdoc(one)] == []


def test_every_public_method_of_the_client_has_a_section_with_its_docstring() -> None:
    from orchestrator.client import Client

    for name, member in members_of(Client):
        section = PYTHON.partition(f"\n#### Client.{name}\n")[2].partition("\n#### ")[0]
        doc = inspect.getdoc(member)
        assert doc, name
        assert doc.splitlines()[0].replace("<", "&lt;") in section, name


def test_a_signature_has_no_address_and_no_quoted_annotation() -> None:
    assert " at 0x" not in PYTHON
    assert "clock: Callable[[], int] = now_ms," in PYTHON


def test_every_route_has_a_section() -> None:
    page = render_http()

    assert [one for one in API_ROUTES if f"\n## {one.method} {one.path}\n" not in page] == []
    assert "`Idempotency-Key` | header |" in page
