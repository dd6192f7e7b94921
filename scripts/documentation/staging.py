"""The source of the site: the pages of docs/ and of the top folder, the generated ones, the configuration.

The pages in the repository link to each other as a code host needs it. Here a link to a page of the top
folder becomes a link to its page in the site, and a link to any other file outside of docs/ becomes a link to
the repository.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from pathlib import Path

import yaml

from scripts.documentation.generated import GENERATED
from scripts.documentation.markdown import change_links, drop_treatments, is_external
from scripts.documentation.navigation import ROOT_PAGES, find_pages_below, read_navigation

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONFIGURATION = DOCS / "site" / "mkdocs.yml"
PLACEHOLDER = "https://example.org/rq-orchestrator"
"""The address of the repository until pyproject.toml has one, as `Repository` in `[project.urls]`."""


def read_repository_url() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project.get("urls", {}).get("Repository", PLACEHOLDER)).rstrip("/")


def site_link(link: str, source: Path, repository: str) -> str:
    """The link as the site needs it; `source` is the file in the repository that has it."""
    name, separator, anchor = link.partition("#")
    if is_external(link) or not name:
        return link
    target = Path(os.path.normpath(source.parent / name))
    path = site_path(target)
    if path is None:
        relative = target.relative_to(ROOT).as_posix()
        found = f"{repository}/{'tree' if target.is_dir() else 'blob'}/main/{relative}"
    else:
        found = os.path.relpath(path, (site_path(source) or Path()).parent)
    return found + separator + anchor


def site_path(file: Path) -> Path | None:
    """Where a file of the repository is in the source of the site; None if it is not there."""
    if file.parent == ROOT:
        return Path(ROOT_PAGES[file.name]) if file.name in ROOT_PAGES else None
    return file.relative_to(DOCS) if DOCS in file.parents and file.is_file() else None


def site_text(source: Path, repository: str) -> str:
    """The text of a page for the site."""
    text = drop_treatments(source.read_text(encoding="utf-8"))
    text = re.sub(r'((?:src|srcset)=")docs/', r"\1", text)  # pictures on the pages of the top folder
    return change_links(text, lambda link: site_link(link, source, repository))


def stage(folder: Path, site: Path) -> Path:
    """Write the source of the site to a folder, and return the path of its configuration."""
    pages, repository = folder / "pages", read_repository_url()
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("*.md", CONFIGURATION.parent.name))
    for source in sorted(DOCS.rglob("*.md")):
        _write(pages / source.relative_to(DOCS), site_text(source, repository))
    for name, path in ROOT_PAGES.items():
        _write(pages / path, site_text(ROOT / name, repository))
    for page in GENERATED:
        _write(pages / page.path, page.render())
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    configuration = {
        "INHERIT": str(CONFIGURATION),
        "docs_dir": str(pages),
        "site_dir": str(site),
        "nav": read_navigation(index, find_pages_below(DOCS)),
    }
    _write(folder / "mkdocs.yml", yaml.safe_dump(configuration, sort_keys=False))
    return folder / "mkdocs.yml"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
