"""The executor `file`: reads and writes files below one folder.

    ORCHESTRATOR_FILE_ROOT   the folder; if unset, there are no files

It reaches nothing outside the folder: it rejects a path with `..`, an absolute path, a symbolic link, a
device and a pipe. A file is written under a temporary name and then renamed. A step that is killed leaves the
old content or the new content, and perhaps a file `.<letters>.part`, which `list` does not show. Every action
can be repeated safely.
"""

from __future__ import annotations

import base64
import binascii
import errno
import json
import os
import secrets
import stat
from contextlib import suppress
from typing import Any, Literal, TypedDict, get_args

from .folders import NotThere, open_folder, split_path
from .settings import Refused, check_choice, check_number, merge_settings

__all__ = ["file"]

Action = Literal["read", "write", "exists", "list", "delete"]
Format = Literal["text", "json", "base64"]
FORMATS: tuple[str, ...] = get_args(Format)
DEFAULT_MAX_BYTES = 1_048_576
MAX_ENTRIES = 10_000
PARTIAL_SUFFIX = ".part"


class FileInputs(TypedDict, total=False):
    """`action` and `path`. To write, one of `text`, `json` and `base64`; to read, `format` names one of
    them."""

    action: Action
    path: str
    text: str
    json: Any
    base64: str
    format: Format
    encoding: str
    max_bytes: int


def file(inputs: FileInputs, configuration: dict[str, Any]) -> dict[str, Any]:
    """Perform `action` (read, write, exists, list or delete) on the file or folder at `path`."""
    settings = merge_settings(configuration, inputs, FileInputs.__annotations__)
    action = check_choice("action", settings.get("action"), get_args(Action))
    _check_content(settings, action)
    parts = split_path(settings.get("path"))
    if action == "list":
        return {"entries": _list(parts)}
    if not parts:
        raise Refused(f"'path' is the folder itself: {action} needs the name of a file in it")
    match action:
        case "read":
            return _read(parts, settings)
        case "write":
            return _write(parts, settings)
        case "exists":
            return _exists(parts)
        case _:
            return _delete(parts)


def _check_content(settings: dict[str, Any], action: str) -> None:
    contents = [name for name in FORMATS if name in settings]
    if action == "write" and len(contents) != 1:
        raise Refused(f"write needs exactly one of {', '.join(FORMATS)}, not {', '.join(contents) or 'none'}")
    if action != "write" and contents:
        raise Refused(f"{contents[0]!r} is only for write, not for {action}")
    if action != "read" and "format" in settings:
        raise Refused(f"'format' is only for read, not for {action}")


# ---- reading


def _read(parts: list[str], settings: dict[str, Any]) -> dict[str, Any]:
    format = check_choice("format", settings.get("format", "text"), FORMATS)
    content = _read_bytes("/".join(parts), parts, _max_bytes(settings))
    size = len(content)
    if format == "base64":
        return {"base64": base64.b64encode(content).decode(), "size": size}
    encoding = _encoding(settings)
    try:
        text = content.decode(encoding)
        return {"text": text, "size": size} if format == "text" else {"json": json.loads(text), "size": size}
    except UnicodeDecodeError as error:
        hint = "set 'encoding', or read it as base64"
        raise NotReadable(f"{'/'.join(parts)!r} is not {encoding}: {error.reason}; {hint}") from None
    except (ValueError, RecursionError) as error:
        raise NotReadable(f"{'/'.join(parts)!r} is not JSON: {error}") from None


class NotReadable(Exception):
    """The content does not fit the settings of the step. A retry may help: the file may change."""


def _read_bytes(path: str, parts: list[str], max_bytes: int) -> bytes:
    with open_folder(parts[:-1]) as folder:
        _check_regular(_stat(folder, parts[-1], path), path)  # opening a device could already change it
        descriptor = _open(folder, parts[-1], path)
    with open(descriptor, "rb") as stream:
        _check_regular(os.fstat(descriptor), path)
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise NotReadable(
            f"{path!r} has more than {max_bytes:,} bytes: raise 'max_bytes', or pass on its path instead"
        )
    return content


def _open(folder: int, name: str, path: str) -> int:
    """Open a file without blocking, in case a pipe has replaced it since the check."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        raise NotThere(f"there is no file {path!r}") from None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise Refused(f"{path!r} is a symbolic link, which is not followed") from None


def _stat(folder: int, name: str, path: str) -> os.stat_result:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        raise NotThere(f"there is no file {path!r}") from None


def _check_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"{path!r} is not a file but a {_kind(status)}")


def _kind(status: os.stat_result) -> str:
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "folder"
    return "symbolic link" if stat.S_ISLNK(status.st_mode) else "device, pipe or socket"


def _max_bytes(settings: dict[str, Any]) -> int:
    return int(check_number("max_bytes", settings.get("max_bytes", DEFAULT_MAX_BYTES)))


def _encoding(settings: dict[str, Any]) -> str:
    name = settings.get("encoding", "utf-8")
    try:
        "".encode(name)
    except (LookupError, TypeError):
        raise Refused(f"'encoding' {name!r} is not known to Python") from None
    return str(name)


# ---- writing


def _write(parts: list[str], settings: dict[str, Any]) -> dict[str, Any]:
    path, content, max_bytes = "/".join(parts), _encode_content(settings), _max_bytes(settings)
    if len(content) > max_bytes:
        raise Refused(f"{path!r} would have {len(content):,} bytes, but 'max_bytes' is {max_bytes:,}")
    with open_folder(parts[:-1], create=True) as folder:
        with suppress(NotThere):
            _check_regular(_stat(folder, parts[-1], path), path)
        _replace(folder, parts[-1], content)
    return {"path": path, "size": len(content)}


def _encode_content(settings: dict[str, Any]) -> bytes:
    if "base64" in settings:
        try:
            return base64.b64decode(settings["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise Refused(f"'base64' is not valid base64: {error}") from None
    if "json" in settings:
        text = json.dumps(settings["json"], ensure_ascii=False) + "\n"
    else:
        text = settings["text"]
    if not isinstance(text, str):
        raise Refused("'text' must be a string; use 'json' for other values")
    encoding = _encoding(settings)
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        raise Refused(f"the text cannot be encoded as {encoding}: {error.reason}") from None


def _replace(folder: int, name: str, content: bytes) -> None:
    """Write a temporary file, flush it to disk, and rename it."""
    part = f".{secrets.token_hex(8)}{PARTIAL_SUFFIX}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(part, flags, 0o666, dir_fd=folder), "wb") as stream:
        try:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
            os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise
    os.fsync(folder)


# ---- listing and deleting


def _exists(parts: list[str]) -> dict[str, Any]:
    try:
        with open_folder(parts[:-1]) as folder:
            return {"exists": True, "kind": _kind(_stat(folder, parts[-1], "/".join(parts)))}
    except NotThere:
        return {"exists": False}


def _list(parts: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with open_folder(parts) as folder, os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and entry.name.endswith(PARTIAL_SUFFIX):
                continue
            with suppress(FileNotFoundError):  # deleted since it was listed
                status = entry.stat(follow_symlinks=False)
                found.append({"name": _printable(entry.name), "kind": _kind(status), "size": status.st_size})
            if len(found) > MAX_ENTRIES:
                raise Refused(f"{'/'.join(parts) or '.'!r} has more than {MAX_ENTRIES:,} entries")
    return sorted(found, key=lambda entry: str(entry["name"]))


def _printable(name: str) -> str:
    """Replace the bytes of a file name that are not UTF-8, since JSON cannot store them."""
    return name.encode(errors="replace").decode()


def _delete(parts: list[str]) -> dict[str, Any]:
    path = "/".join(parts)
    try:
        with open_folder(parts[:-1]) as folder:
            _check_regular(_stat(folder, parts[-1], path), path)
            os.unlink(parts[-1], dir_fd=folder)
    except (FileNotFoundError, NotThere):
        return {"deleted": False}
    return {"deleted": True}
