"""What the tests of pages may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.pages import Reader, reading


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with reading(tmp_path) as made:
        yield made
