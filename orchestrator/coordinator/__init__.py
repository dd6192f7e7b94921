"""The coordinator turns events into commits."""

from orchestrator.coordinator.loop import Coordinator, CoordinatorOptions

__all__ = ["Coordinator", "CoordinatorOptions"]
