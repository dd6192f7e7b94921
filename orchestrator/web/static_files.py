"""The style, the scripts and the icons of the page, with their digests."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files

TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
"""The kinds of files that are served, by the end of their names."""

FILES = {
    file.name: file.read_bytes()
    for folder in (files("orchestrator.web") / "static", files("orchestrator.drawing"))
    for file in folder.iterdir()
    if file.name.rpartition(".")[2] in TYPES
}
"""Only these names are served, so no path leads out of the folders."""

DIGESTS = {name: sha256(content).hexdigest()[:12] for name, content in FILES.items()}
"""Part of the path of each file."""
