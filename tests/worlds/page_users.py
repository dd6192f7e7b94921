"""Users of the page, for tests: a file of tokens with one user of each role."""

from __future__ import annotations

from pathlib import Path

ADA, WALL, SHOP = "ada-" + "a" * 28, "wall-" + "w" * 28, "shop-" + "s" * 28
"""The tokens of ada, who may operate; of wall, which may read; and of shop, which may start `order`."""
USERS = f"""
# user  role         token
ada     operate      {ADA}
wall    read         {WALL}
shop    start:order  {SHOP}
"""


def write_users(folder: Path, text: str = USERS) -> Path:
    """Write a file of tokens that only its owner can read."""
    path = folder / "tokens"
    path.touch(0o600)
    path.write_text(text, encoding="utf-8")
    return path


def bearer(token: str) -> dict[str, str]:
    """The header by which a program sends its token."""
    return {"Authorization": f"Bearer {token}"}
