"""rich is an extra: what is drawn with it is tested where it is installed."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest


def require_rich() -> None:
    """Skip the test where there is no rich, except where somebody counts on the test being run."""
    if find_spec("rich") is not None:
        return
    if os.environ.get("CI"):
        pytest.fail("rich is not installed: pip install 'rq-orchestrator[dev]'", pytrace=False)
    pytest.skip("rich is not installed")
