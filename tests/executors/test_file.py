"""The executor `file`: it reads and writes files atomically, and only below its folder."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator_executors import file as module
from orchestrator_executors.file import NotReadable, file
from orchestrator_executors.folders import ROOT_VARIABLE, NotThere
from orchestrator_executors.settings import Refused
from processes import ROOT, wait_until

Json = dict[str, Any]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("not yours")
    monkeypatch.setenv(ROOT_VARIABLE, str(made))
    return made


def do(action: str, path: Any, configuration: Json | None = None, **settings: Any) -> Json:
    return file({"action": action, "path": path, **settings}, configuration or {})  # type: ignore[typeddict-item]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- actions


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ({"text": "grün\n"}, "grün\n".encode()),
        ({"text": "grün", "encoding": "latin-1"}, b"gr\xfcn"),
        ({"text": ""}, b""),
        ({"json": {"a": [1, "ü", None]}}, '{"a": [1, "ü", null]}\n'.encode()),
        ({"base64": base64.b64encode(bytes(range(256))).decode()}, bytes(range(256))),
    ],
)
def test_written_content_can_be_read_back(content: Json, written: bytes, root: Path) -> None:
    [how] = content.keys() - {"encoding"}

    output = do("write", "a/b/c.txt", **content)

    assert output == {"path": "a/b/c.txt", "size": len(written)}
    assert (root / "a/b/c.txt").read_bytes() == written
    assert names(root / "a/b") == ["c.txt"]
    encoding = {key: value for key, value in content.items() if key == "encoding"}
    assert do("read", "a//b/./c.txt", format=how, **encoding) == {how: content[how], "size": len(written)}


def test_writing_and_deleting_again_change_nothing(root: Path) -> None:
    for _ in range(2):
        do("write", "a", text="x")
    assert do("read", "a") == {"text": "x", "size": 1}
    assert do("delete", "a") == {"deleted": True}
    assert do("delete", "a") == {"deleted": False}
    assert do("delete", "no/such/folder") == {"deleted": False}
    assert names(root) == []


def test_exists_reports_whether_there_is_a_file(root: Path) -> None:
    do("write", "a/b", text="x")
    (root / "link").symlink_to("a")

    assert do("exists", "a/b") == {"exists": True, "kind": "file"}
    assert do("exists", "a") == {"exists": True, "kind": "folder"}
    assert do("exists", "link") == {"exists": True, "kind": "symbolic link"}
    assert do("exists", "a/c") == {"exists": False}
    assert do("exists", "b/c") == {"exists": False}


def test_a_folder_is_listed_in_order_without_partial_files(root: Path) -> None:
    do("write", "b", text="xyz")
    do("write", "a/c", text="")
    os.mkfifo(root / "pipe")
    (root / ".0123.part").write_text("half")
    (root / os.fsdecode(b"\xff")).write_text("")

    entries = do("list", ".")["entries"]

    assert [(entry["name"], entry["kind"]) for entry in entries] == [
        ("?", "file"),
        ("a", "folder"),
        ("b", "file"),
        ("pipe", "device, pipe or socket"),
    ]
    assert entries[2]["size"] == 3
    assert do("list", "a") == {"entries": [{"name": "c", "kind": "file", "size": 0}]}


def test_a_folder_with_too_many_entries_is_rejected(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 2)
    for name in "abc":
        do("write", name, text="")

    with pytest.raises(Refused, match=r"'\.' has more than 2 entries"):
        do("list", ".")


def test_the_configuration_fixes_what_an_input_cannot_change(root: Path) -> None:
    do("write", "a", text="x")

    assert file({"path": "a"}, {"action": "read"})["text"] == "x"
    with pytest.raises(Refused, match="'action' is fixed by the configuration"):
        file({"path": "a", "action": "delete"}, {"action": "read"})


# ---- paths that are rejected


def test_without_a_folder_there_are_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)

    for action in ("read", "exists", "list", "delete"):
        with pytest.raises(Refused, match=f"{ROOT_VARIABLE} is not set") as caught:
            do(action, "a")
        assert caught.value.non_retryable
    with pytest.raises(Refused, match=f"{ROOT_VARIABLE} is not set"):
        do("write", "a", text="x")


def test_a_missing_root_folder_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "unmounted"))

    with pytest.raises(NotThere, match=f"the folder in {ROOT_VARIABLE} cannot be opened: No such file"):
        do("read", "a")


ALL = [("read", {}), ("write", {"text": "x"}), ("exists", {}), ("list", {}), ("delete", {})]


@pytest.mark.parametrize(("action", "content"), ALL)
@pytest.mark.parametrize(
    "path",
    ["../outside/secret", "a/../../outside", "..", "/etc/passwd", "//etc", "a\0b", "\ud800", "", None, 3],
)
def test_a_path_out_of_the_root_is_rejected(action: str, content: Json, path: Any, root: Path) -> None:
    with pytest.raises(Refused, match=r"is not allowed|must be a string|half a character"):
        do(action, path, **content)


@pytest.mark.parametrize(("action", "content"), ALL)
def test_a_link_in_a_path_is_not_followed(action: str, content: Json, root: Path) -> None:
    (root / "out").symlink_to("../outside")
    (root / "inside").mkdir()
    (root / "in").symlink_to("inside")

    for name in ("out", "in"):
        with pytest.raises(Refused, match=f"'{name}' is not a folder, or is a symbolic link"):
            do(action, f"{name}/secret/x" if action == "list" else f"{name}/secret", **content)
    assert names(root.parent / "outside") == ["secret"]
    assert names(root / "inside") == []


@pytest.mark.parametrize(("action", "content"), [ALL[0], ALL[1], ALL[4]])
def test_a_link_or_a_pipe_or_a_device_or_a_folder_is_not_a_file(
    action: str, content: Json, root: Path
) -> None:
    (root / "link").symlink_to("../outside/secret")
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(root / "socket"))
    kinds = {"link": "symbolic link", "pipe": "device", "folder": "folder", "socket": "device"}

    for name, kind in kinds.items():
        with pytest.raises(Refused, match=f"'{name}' is not a file but a {kind}"):
            do(action, name, **content)
    assert (root.parent / "outside" / "secret").read_text() == "not yours"
    assert names(root) == sorted(kinds)


def test_a_pipe_or_a_link_that_replaces_a_file_after_the_check_is_detected(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do("write", "a", text="x")
    look = os.stat

    def exchanged(make: Any) -> Any:
        def stat(*args: Any, **options: Any) -> os.stat_result:
            found = look(*args, **options)
            (root / "a").unlink()
            make(root / "a")
            return found

        return stat

    monkeypatch.setattr(os, "stat", exchanged(os.mkfifo))
    with pytest.raises(Refused, match="'a' is not a file but a device, pipe"):
        do("read", "a")
    monkeypatch.undo()
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    (root / "a").unlink()
    do("write", "a", text="x")
    monkeypatch.setattr(os, "stat", exchanged(lambda path: path.symlink_to("../outside/secret")))
    with pytest.raises(Refused, match="'a' is a symbolic link"):
        do("read", "a")


# ---- failures


def test_a_missing_file_is_retried(root: Path) -> None:
    with pytest.raises(NotThere, match="there is no file 'a'") as caught:
        do("read", "a")
    assert not hasattr(caught.value, "non_retryable")
    with pytest.raises(NotThere, match="there is no folder 'b'"):
        do("read", "b/a")
    with pytest.raises(NotThere, match="there is no folder 'b'"):
        do("list", "b")


def test_content_that_does_not_fit_the_format_is_a_failure(root: Path) -> None:
    do("write", "binary", base64="/w==")
    do("write", "text", text="{")
    do("write", "deep", text="[" * 100_000)

    with pytest.raises(NotReadable, match=r"'binary' is not utf-8: .*read it as base64"):
        do("read", "binary")
    with pytest.raises(NotReadable, match="'text' is not JSON"):
        do("read", "text", format="json")
    with pytest.raises(NotReadable, match="'deep' is not JSON"):
        do("read", "deep", format="json")


def test_a_file_that_is_too_large_is_neither_read_nor_written(root: Path) -> None:
    do("write", "a", text="12345")

    assert do("read", "a", max_bytes=5)["size"] == 5
    with pytest.raises(NotReadable, match="'a' has more than 4 bytes: raise 'max_bytes'"):
        do("read", "a", max_bytes=4)
    with pytest.raises(Refused, match="'a' would have 6 bytes, but 'max_bytes' is 5"):
        do("write", "a", text="123456", max_bytes=5)
    assert do("read", "a")["text"] == "12345"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"action": "wrte"}, "'action' must be one of read, write, exists, list, delete"),
        ({"action": None}, "'action' must be one of"),
        ({"action": "write"}, "write needs exactly one of text, json, base64, not none"),
        (
            {"action": "write", "text": "a", "json": 1},
            "write needs exactly one of text, json, base64, not text, json",
        ),
        ({"action": "write", "text": 1}, "use 'json' for other values"),
        ({"action": "write", "base64": "?"}, "'base64' is not valid base64"),
        ({"action": "write", "base64": 1}, "'base64' is not valid base64"),
        ({"action": "write", "text": "ü", "encoding": "ascii"}, "cannot be encoded as ascii"),
        ({"action": "write", "text": "ü", "encoding": "latin-x"}, "is not known to Python"),
        ({"action": "write", "text": "ü", "encoding": 1}, "is not known to Python"),
        ({"action": "write", "text": "ü", "format": "text"}, "'format' is only for read"),
        ({"action": "read", "text": "a"}, "'text' is only for write"),
        ({"action": "read", "format": "yaml"}, "'format' must be one of text, json, base64"),
        ({"action": "read", "max_bytes": -1}, "'max_bytes' must be a number"),
        ({"action": "read", "pth": "a"}, "unknown setting 'pth'; did you mean 'path'"),
        ({"action": "read", "path": "."}, "'path' is the folder itself"),
    ],
)
def test_wrong_settings_are_rejected_by_name(settings: Json, said: str, root: Path) -> None:
    with pytest.raises(Refused, match=said):
        file({"path": "a", **settings}, {})  # type: ignore[typeddict-item]


# ---- atomic writes


def test_a_disk_that_is_full_leaves_the_old_content_and_nothing_else(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do("write", "a", text="old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        do("write", "a", text="new")
    assert (root / "a").read_text() == "old"
    assert names(root) == ["a"]


WRITER = f"""
import sys
sys.path.insert(0, {str(ROOT / "executors")!r})
from orchestrator_executors.file import file
while True:
    for letter in "xy":
        file({{"action": "write", "path": "a", "text": letter * 1_000_000}}, {{}})
"""


def test_a_process_killed_while_writing_leaves_the_old_or_the_new_content(root: Path) -> None:
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER], env={**os.environ, ROOT_VARIABLE: str(root)}
        )
        seen = {path.stat().st_ino for path in root.iterdir()}
        wait_until(lambda seen=seen: {path.stat().st_ino for path in root.glob("a")} - seen)  # type: ignore[misc]
        writer.send_signal(signal.SIGKILL)
        writer.wait()

        text = do("read", "a")["text"]
        assert text in ("x" * 1_000_000, "y" * 1_000_000)
        assert [entry["name"] for entry in do("list", ".")["entries"]] == ["a"]
