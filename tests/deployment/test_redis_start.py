"""docs/deploy/redis/start: Redis has the users of docs/acl, with the passwords of files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from processes import wait_until
from servers.redis_server import require_redis_server, require_redis_version

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "deploy" / "redis" / "start"
USERS = ("coordinator", "operator", "producer", "reader", "worker")


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    folder = tmp_path / "p"
    folder.mkdir()
    for user in USERS:
        (folder / f"redis-{user}").write_text(f"password &/of\\1 the {user}, long enough")
    return folder


def start(folder: Path, passwords: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["sh", str(SCRIPT), "--port", "0", "--unixsocket", str(folder / "s"), "--dir", str(folder)],
        env={
            **os.environ,
            "RULES": str(ROOT / "docs" / "acl"),
            "PASSWORDS": str(passwords),
            "USERS": str(folder / "u"),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def started(folder: Path, passwords: Path) -> Iterator[Path]:
    require_redis_server()
    require_redis_version((7, 0), "docs/acl has permissions that tell reading from writing")
    process = start(folder, passwords)
    try:
        wait_until(lambda: (folder / "s").exists() or process.poll() is not None, what="Redis to listen")
        yield folder / "s"
    finally:
        process.terminate()
        process.communicate()


def client(socket: Path, user: str, password: str) -> Redis:
    return Redis(unix_socket_path=str(socket), username=user, password=password, protocol=2)


@pytest.fixture
def socket(tmp_path: Path, passwords: Path) -> Iterator[Path]:
    with started(tmp_path, passwords) as socket:
        yield socket


@pytest.mark.parametrize("user", USERS)
def test_each_user_has_its_password_and_its_rules(socket: Path, user: str) -> None:
    with client(socket, user, f"password &/of\\1 the {user}, long enough") as redis:
        assert redis.ping()
        with pytest.raises(NoPermissionError):
            redis.config_get("maxmemory-policy")
    with client(socket, user, f"{user}-password") as redis, pytest.raises(AuthenticationError):
        redis.ping()


def test_without_a_user_nothing_is_allowed(socket: Path) -> None:
    with Redis(unix_socket_path=str(socket), protocol=2) as redis, pytest.raises(RedisError):
        redis.ping()


def test_a_second_line_is_a_second_password(tmp_path: Path, passwords: Path) -> None:
    first, second = "the first password of workers", "the second password of workers"
    (passwords / "redis-worker").write_text(f"{first}\n{second}\n")

    with started(tmp_path, passwords) as socket:
        for password in (first, second):
            with client(socket, "worker", password) as redis:
                assert redis.ping()


@pytest.mark.parametrize("text", [None, "", "short\n", "the first password of workers\n\n"])
def test_without_good_passwords_redis_does_not_start(
    tmp_path: Path, passwords: Path, text: str | None
) -> None:
    file = passwords / "redis-worker"
    file.unlink() if text is None else file.write_text(text)

    process = start(tmp_path, passwords)
    _, errors = process.communicate(timeout=180)

    assert process.returncode != 0
    assert "redis-worker" in errors


def test_passwords_are_not_written_to_the_file_of_users(socket: Path, tmp_path: Path) -> None:
    assert "long enough" not in (tmp_path / "u").read_text()
    assert (tmp_path / "u").stat().st_mode & 0o077 == 0
