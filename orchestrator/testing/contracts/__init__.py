"""Contract tests for your own Store, Runner and payload store.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path)

Tests of parts that a store or runner may leave out are skipped if it leaves them out. This package needs
pytest; nothing else of orchestrator imports it.
"""

import pytest

pytest.register_assert_rewrite(__name__)

from orchestrator.testing.contracts.payload_store import PayloadStoreContract  # noqa: E402
from orchestrator.testing.contracts.runner import RunnerContract  # noqa: E402
from orchestrator.testing.contracts.store import StoreContract  # noqa: E402

__all__ = ["PayloadStoreContract", "RunnerContract", "StoreContract"]
