"""Where payloads are kept besides Redis, and how the environment says where."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fakeredis import FakeRedis, FakeServer

from orchestrator.application.errors import StoreError, Unavailable
from orchestrator.cli import main
from orchestrator.cli.errors import InvalidRequest
from orchestrator.cli.startup import prepare_payloads
from orchestrator.payload_stores import PayloadSettings
from orchestrator.payload_stores.folder import DirectoryPayloads
from orchestrator.payload_stores.s3 import S3Payloads
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.payloads import RedisPayloads
from orchestrator.settings import BadSetting, Settings
from orchestrator.wiring import check_settings
from servers.s3_server import CREDENTIALS, S3, s3_server

ID = "ab" * 32
DAY_S = 86_400


# ---- settings


def settings(**variables: str) -> PayloadSettings:
    environment = {f"ORCHESTRATOR_{name}": one for name, one in variables.items()}
    return PayloadSettings.from_settings(Settings.from_environment(environment))


def opened(found: PayloadSettings) -> Any:
    return found.open(FakeRedis(server=FakeServer()), Keys())


def test_payloads_are_in_redis_for_a_day_longer_than_records() -> None:
    assert settings() == PayloadSettings("redis", 8 * DAY_S, 64 * 1024 * 1024, None)
    assert settings(RETENTION_S="100").ttl_s == 100 + DAY_S
    assert settings(RETENTION_S="100", PAYLOAD_TTL_S="5", PAYLOAD_MAX_BYTES="6") == PayloadSettings(
        "redis", 5, 6
    )
    assert isinstance(opened(settings()), RedisPayloads)
    assert isinstance(opened(settings(PAYLOADS="redis")), RedisPayloads)


def test_payloads_are_where_the_address_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)

    folder = opened(settings(PAYLOADS=f"file://{tmp_path}/a%20b"))
    folder.put(ID, b"1")
    bucket = settings(PAYLOADS="s3://bucket/pre/fix/", S3_ENDPOINT="http://127.0.0.1:1")

    assert (tmp_path / "a b" / "ab" / ID).read_bytes() == b"1"
    assert isinstance(opened(bucket), S3Payloads)
    bucket.prepare()
    assert opened(bucket) is opened(bucket)


@pytest.mark.parametrize(
    "address", ["file://folder", "file:///", "s3://", "s3:bucket", "/folder", "http://x/y"]
)
def test_an_invalid_address_is_rejected_with_the_valid_forms(address: str) -> None:
    with pytest.raises(
        StoreError, match=r"ORCHESTRATOR_PAYLOADS must be redis, file:///an/absolute/folder or s3"
    ):
        settings(PAYLOADS=address)
    with pytest.raises(BadSetting, match=r"ORCHESTRATOR_PAYLOADS must be"):
        check_settings(Settings(payloads=address))


# ---- a folder


def test_a_file_is_in_the_subfolder_of_its_id_and_nothing_else_is(tmp_path: Path) -> None:
    DirectoryPayloads(tmp_path / "made", 60).put(ID, b"1")

    assert [path for path in (tmp_path / "made").rglob("*") if path.is_file()] == [
        tmp_path / "made" / "ab" / ID
    ]
    assert (tmp_path / "made" / "ab" / ID).stat().st_mode & 0o777 == 0o640


def test_a_put_removes_expired_files_from_its_subfolder(tmp_path: Path) -> None:
    payloads = DirectoryPayloads(tmp_path, 60)
    old, young, elsewhere, left = "ab" + "0" * 62, "ab" + "1" * 62, "cd" * 32, tmp_path / "ab" / ".x.new"
    for one in (old, young, elsewhere):
        payloads.put(one, b"1")
    left.write_bytes(b"half")
    for path in (tmp_path / "ab" / old, tmp_path / "cd" / elsewhere, left):
        os.utime(path, (time.time() - 61, time.time() - 61))

    payloads.put(ID, b"1")

    assert payloads.get(old) is None
    assert payloads.get(young) == b"1"
    assert payloads.get(elsewhere) == b"1"
    assert not left.exists()


def test_a_get_renews_a_file(tmp_path: Path) -> None:
    payloads = DirectoryPayloads(tmp_path, 60)
    payloads.put(ID, b"1")
    os.utime(tmp_path / "ab" / ID, (1, 1))

    assert payloads.get(ID) == b"1"

    assert (tmp_path / "ab" / ID).stat().st_mtime > time.time() - 60


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")

    payloads = DirectoryPayloads(tmp_path / "file" / "x", 60)
    asks: list[Callable[[], object]] = [lambda: payloads.put(ID, b"1"), lambda: payloads.get(ID)]
    for ask in asks:
        with pytest.raises(StoreError, match=f"payload folder {tmp_path}/file/x: "):
            ask()


def test_a_full_disk_is_temporary_and_leaves_no_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(Unavailable, match="No space left on device"):
        DirectoryPayloads(tmp_path, 60).put(ID, b"1")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


# ---- a bucket


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with s3_server() as server:
        yield server


def test_an_object_has_the_id_under_the_prefix(s3: S3) -> None:
    S3Payloads("payloads", "some/where", s3.url).put(ID, b"1")
    S3Payloads("payloads", "", s3.url).put(ID, b"2")

    assert s3.objects == {f"some/where/{ID}": b"1", ID: b"2"}


def test_it_signs_for_the_region_that_is_set(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")

    S3Payloads("payloads", "", s3.url).put(ID, b"1")

    assert s3.objects == {ID: b"1"}


def test_wrong_credentials_are_not_temporary(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    payloads = S3Payloads("payloads", "", s3.url)

    asks: list[Callable[[], object]] = [lambda: payloads.put(ID, b"1"), lambda: payloads.get(ID)]
    for ask in asks:
        with pytest.raises(StoreError, match=r"s3://payloads: .*SignatureDoesNotMatch") as raised:
            ask()
        assert not isinstance(raised.value, Unavailable)
    assert s3.objects == {}


def test_missing_credentials_are_reported(s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))

    with pytest.raises(StoreError, match=r"s3://payloads: Unable to locate credentials"):
        S3Payloads("payloads", "", s3.url).put(ID, b"1")


def test_another_bucket_is_an_error_and_not_an_empty_one(s3: S3) -> None:
    with pytest.raises(StoreError, match=r"s3://other: .*NoSuchBucket"):
        S3Payloads("other", "", s3.url).get(ID)


def test_a_busy_service_is_retried_and_then_unavailable(s3: S3) -> None:
    payloads = S3Payloads("payloads", "", s3.url)
    s3.failures = [503]
    payloads.put(ID, b"1")
    assert s3.objects == {ID: b"1"}

    s3.failures = [503] * 3
    with pytest.raises(Unavailable, match=r"s3://payloads"):
        payloads.get(ID)
    assert payloads.get(ID) == b"1"


def test_an_unreachable_service_is_unavailable(s3: S3) -> None:
    with pytest.raises(Unavailable, match=r"s3://payloads: Could not connect"):
        S3Payloads("payloads", "", "http://127.0.0.1:1").get(ID)


def test_without_boto3_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)

    with pytest.raises(StoreError, match=r"boto3 is not installed: pip install 'rq-orchestrator\[s3\]'"):
        S3Payloads("payloads", "", "http://127.0.0.1:1")
    monkeypatch.setenv("ORCHESTRATOR_PAYLOADS", "s3://a-bucket-of-this-test-only")
    with pytest.raises(InvalidRequest, match="boto3 is not installed"):
        prepare_payloads(Settings.from_environment())


def test_an_invalid_id_is_rejected() -> None:
    result = CliRunner().invoke(main, ["payload", "../../etc/passwd"])

    assert result.exit_code == 2
    assert "a payload id has 64 digits of 0 to 9 and a to f, not '../../etc/passwd'" in result.output
