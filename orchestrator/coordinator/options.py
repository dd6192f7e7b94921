"""CoordinatorOptions: batch sizes, intervals and limits of a coordinator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """`batch` and `jobs_per_commit` are sizes; `max_deliveries` and `max_conflicts` limit retries."""

    batch: int = 200
    jobs_per_commit: int = 500
    block_ms: int = 500
    sweep_every_s: float = 0.5
    reclaim_every_s: float = 1.0
    reclaim_after_ms: int = 5_000
    reclaim_for_s: float = 1.0
    renew_every_s: float = 1.0
    trim_every_s: float = 10.0
    repair_every_s: float = 1.0
    max_deliveries: int = 5
    max_conflicts: int = 20
