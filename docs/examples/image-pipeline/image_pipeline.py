"""The executors of image-pipeline. Pictures are files in the format PPM, which needs no library."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, TypedDict

HEADER = re.compile(rb"P6\s+(\d+)\s+(\d+)\s+255\s")
MAX_PIXELS = 50_000_000


class BadImage(Exception):
    """The file is no picture. Another attempt would not help."""


class Thumbnail(TypedDict):
    file: str
    target: str
    width: int


def find_images(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"files": sorted(str(path) for path in Path(inputs["folder"]).glob("*.ppm"))}


def make_thumbnail(inputs: Thumbnail) -> dict[str, Any]:
    """Write a thumbnail, named by the content of the picture: a second call finds it and does nothing."""
    content = Path(inputs["file"]).read_bytes()
    name = f"{hashlib.sha256(content).hexdigest()[:16]}-{inputs['width']}.ppm"
    target = Path(inputs["target"], name)
    if not target.exists():
        replace(target, shrink(content, inputs["width"]))
    return {"name": name, "bytes": target.stat().st_size}


def sort_out(inputs: dict[str, Any]) -> dict[str, Any]:
    """Name the thumbnail, or the error, of each picture. Items are in the order of the files."""
    names = [Path(file).name for file in inputs["files"]]
    named = dict(zip(names, inputs["thumbnails"], strict=True))
    broken = {name: one["error"] for name, one in named.items() if one.get("ok") is False}
    return {
        "made": {name: one["name"] for name, one in named.items() if name not in broken},
        "broken": broken,
    }


def write_index(inputs: dict[str, Any]) -> dict[str, Any]:
    """Write which thumbnail belongs to which picture."""
    target = Path(inputs["target"], "index.json")
    replace(target, json.dumps(inputs["made"], indent=1).encode())
    return {"index": str(target)}


def shrink(content: bytes, width: int) -> bytes:
    """A picture of this width at most, made of every n-th pixel."""
    header = HEADER.match(content)
    if header is None:
        raise BadImage("not a picture in the format P6")
    old_width, old_height = int(header[1]), int(header[2])
    pixels = content[header.end() :]
    if not 0 < old_width * old_height <= MAX_PIXELS or len(pixels) != 3 * old_width * old_height:
        raise BadImage(f"not {old_width} x {old_height} pixels")
    step = max(1, -(-old_width // width))
    rows = range(0, old_height, step)
    columns = range(0, old_width, step)
    small = b"".join(pixels[3 * (row * old_width + column) :][:3] for row in rows for column in columns)
    return b"P6 %d %d 255\n" % (len(columns), len(rows)) + small


def replace(target: Path, content: bytes) -> None:
    """Write a file as a whole: a reader sees the old content or the new one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(target)


def write_picture(path: Path, width: int, height: int, colour: bytes = b"\xff\x80\x00") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"P6 %d %d 255\n" % (width, height) + width * height * colour)


if __name__ == "__main__":
    for n in range(1, 4):
        write_picture(Path("pictures", f"{n}.ppm"), 100 * n, 50, bytes([80 * n, 0, 0]))
    Path("pictures", "torn.ppm").write_bytes(b"P6 100 100 255\n")
