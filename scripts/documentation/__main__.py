"""Builds the site: python -m scripts.documentation SOURCE SITE, with a new folder for its source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scripts.documentation.block_counts import count_blocks, report
from scripts.documentation.generated import GENERATED
from scripts.documentation.navigation import ROOT_PAGES
from scripts.documentation.site_checks import find_problems
from scripts.documentation.staging import DOCS, PLACEHOLDER, ROOT, read_repository_url, stage


def build(configuration: Path) -> int:
    """Build the site, and return the exit code: a broken link, anchor or page is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "-f", str(configuration)]
    quiet = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}  # an advertisement of the theme
    return subprocess.run(command, cwd=configuration.parent, env=os.environ | quiet, check=False).returncode


def main(source: Path, site: Path) -> int:
    if site.exists() and any(site.iterdir()) and not (site / "search" / "search_index.json").exists():
        print(f"{site} has files, and they are not a site: it is not replaced", file=sys.stderr)
        return 2
    if build(stage(source, site)):
        return 1
    problems = list(find_problems(site))
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    written = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in ROOT_PAGES)]
    print(report(count_blocks(ROOT, written), len(written)))
    print(f"{len(GENERATED)} generated pages, {len(list(site.rglob('*.html')))} HTML files in {site}")
    if read_repository_url() == PLACEHOLDER:
        print(
            f"Links to files of the repository lead to {PLACEHOLDER}: pyproject.toml has no Repository yet."
        )
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(*map(Path, sys.argv[1:])))
