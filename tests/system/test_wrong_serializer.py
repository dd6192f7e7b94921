"""A stock `rq worker` that was started without `--serializer json`, as real processes."""

from __future__ import annotations

from pathlib import Path

from orchestrator.application.records.decisions import Failed
from orchestrator.redis_rq.lost_reasons import WRONG_SERIALIZER
from processes import PatientClient, stack


def test_a_stock_worker_with_another_serializer_is_named_with_the_remedy(
    redis_url: str, tmp_path: Path
) -> None:
    client = PatientClient(redis_url)
    with stack(redis_url, "async_functions", tmp_path) as processes:
        processes.coordinator()
        processes.rq_worker(serializer=())
        client.start({"steps": [{"id": "a", "fn": "sit"}]}, execution_id="x")

        final = client.wait("x", 180)

    assert isinstance(final, Failed), processes.log()
    losses = client.record("x").spec.limits.max_lost + 1
    message = f"{WRONG_SERIALIZER} ({losses} workers lost with this attempt)"
    assert final.error == {"kind": "lost", "message": message, "step": "a"}
