"""The pages that are generated from the code, so that they cannot differ from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scripts.documentation.cli_reference import render_cli
from scripts.documentation.http_reference import render_http
from scripts.documentation.python_reference import render_python


@dataclass(frozen=True)
class GeneratedPage:
    path: str
    title: str
    after: str
    """The page of docs/ that it follows in the navigation."""
    render: Callable[[], str]


GENERATED = (
    GeneratedPage("reference/cli.md", "Every command and option", "cli.md", render_cli),
    GeneratedPage("reference/python.md", "Python API", "cli.md", render_python),
    GeneratedPage("reference/http.md", "Every route of the HTTP API", "http-api.md", render_http),
)
