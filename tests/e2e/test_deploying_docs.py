"""docs/deploying.md is correct: its commands write what compose.yaml and the files for Kubernetes need."""

from __future__ import annotations

import base64
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from e2e.pages import Reader, blocks, check_treatments, reading
from orchestrator.web.access.tokens import TokenFile

PAGE = "docs/deploying.md"
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
COMPOSE, KUBERNETES = [block for block in blocks(TEXT) if block.treatment == "console"]
REQUIRED = re.compile(r"\$\{(\w+):\?")


def variables(folder: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())


def do(reader: Reader, *needed: str) -> None:
    for name in needed:
        if shutil.which(name) is None:
            pytest.skip(f"there is no {name} on the PATH")
    reader.environment |= {"REPOSITORY": str(ROOT), "KUBECONFIG": os.devnull, "HOME": str(reader.folder)}
    reader.do(COMPOSE)


def test_every_block_names_its_treatment() -> None:
    check_treatments(PAGE)


def test_the_commands_write_every_variable_and_file_that_compose_needs(tmp_path: Path) -> None:
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    sources = {one["environment"] for one in yaml.safe_load(text)["secrets"].values()}

    with reading(tmp_path, PAGE) as reader:
        do(reader, "openssl")

    found = variables(tmp_path)
    assert {*REQUIRED.findall(text), *sources, "WEB_USER"} == found.keys()
    assert len(set(found.values())) == len(found)
    assert [user.name for _, user in TokenFile(tmp_path / "web" / "tokens").digests()] == ["ada"]
    assert all((tmp_path / name).stat().st_mode & 0o077 == 0 for name in (".env", "web/tokens"))


def test_the_commands_write_the_secrets_that_kubernetes_needs(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        do(reader, "openssl", "kubectl")
        reader.do(KUBERNETES)

    system = (tmp_path / "system.yaml").read_text()
    secrets = {
        one["metadata"]["name"]: {key: base64.b64decode(text).decode() for key, text in one["data"].items()}
        for one in yaml.safe_load_all((tmp_path / "secrets.yaml").read_text())
    }
    expected = {
        f"redis-{name.split('_')[1].lower()}": value
        for name, value in variables(tmp_path).items()
        if name.startswith("REDIS_")
    }
    assert secrets["orchestrator-redis"] == expected
    assert set(re.findall(r"key: (redis-\w+)", system)) <= expected.keys()
    assert set(re.findall(r"secretName: (.*)|secretKeyRef:\n +key: .*\n +name: (.*)", system)) <= {
        ("orchestrator-redis", ""),
        ("orchestrator-web", ""),
        ("", "orchestrator-redis"),
    }
    assert secrets["orchestrator-web"].keys() == {"tokens"}
