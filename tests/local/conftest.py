"""What the tests of one process share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def own_ctrl_c() -> Iterator[None]:
    """^C raises KeyboardInterrupt, although a worker of RQ in this process may have set another handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
