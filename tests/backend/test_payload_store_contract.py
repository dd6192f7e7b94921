"""The contract of a payload store, on every payload store of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.port_implementations import PAYLOADS
from orchestrator.application.values.payload_refs import PayloadStore
from orchestrator.testing.contracts import PayloadStoreContract


class TestPayloadStores(PayloadStoreContract):
    @pytest.fixture(params=PAYLOADS)
    def payloads(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PayloadStore]:
        with PAYLOADS[request.param](tmp_path) as made:
            yield made
