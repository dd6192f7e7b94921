"""Contract tests for your own Store, Runner and payload store.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path)

Tests of parts that a store or runner may leave out are skipped if it leaves them out. This package needs
pytest; nothing else of orchestrator imports it.
"""

from pkgutil import iter_modules

import pytest

# Registered before they are imported, so that a failed assertion shows its values.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

from orchestrator.testing.contracts.payload_store import PayloadStoreContract  # noqa: E402
from orchestrator.testing.contracts.runner import RunnerContract  # noqa: E402
from orchestrator.testing.contracts.store import StoreContract  # noqa: E402

__all__ = ["PayloadStoreContract", "RunnerContract", "StoreContract"]
