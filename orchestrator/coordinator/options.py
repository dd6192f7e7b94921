"""CoordinatorOptions: batch sizes, intervals and limits of a coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.application.engine.turn import MAX_TURN_WORK


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """`batch` and `jobs_per_commit` are sizes; `max_deliveries` and `max_conflicts` limit retries;
    `work_per_turn` is after how many units of work a turn ends, and `bytes_per_turn` after which size of its
    events.

    A new document of more than `small_document_bytes`, and a stored one of more than `small_stored_bytes`, is
    checked outside of the loop: a stored one has no problems to search for. `max_documents` of them are
    kept at a time. No new starts are read while `max_waiting_starts` wait for the check of their documents.
    """

    batch: int = 200
    jobs_per_commit: int = 500
    work_per_turn: int = MAX_TURN_WORK
    bytes_per_turn: int = 256 * 1024
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
    small_document_bytes: int = 16 * 1024
    small_stored_bytes: int = 256 * 1024
    max_documents: int = 16
    max_waiting_starts: int = 10_000
