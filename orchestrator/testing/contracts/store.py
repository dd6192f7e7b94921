"""The contract of a store: all of its parts."""

from __future__ import annotations

from orchestrator.testing.contracts.commits import CommitContract
from orchestrator.testing.contracts.deletion import DeletionContract
from orchestrator.testing.contracts.history import HistoryContract
from orchestrator.testing.contracts.items import ItemContract
from orchestrator.testing.contracts.load_and_write import LoadAndWriteContract
from orchestrator.testing.contracts.outgoing_events import OutgoingEventContract
from orchestrator.testing.contracts.shared_values import SharedValueContract
from orchestrator.testing.contracts.slots import SlotContract
from orchestrator.testing.contracts.step_log import StepLogContract


class StoreContract(
    LoadAndWriteContract,
    CommitContract,
    ItemContract,
    DeletionContract,
    HistoryContract,
    StepLogContract,
    OutgoingEventContract,
    SlotContract,
    SharedValueContract,
):
    """What every store promises. A subclass defines the fixture `store`."""
