"""Finds the RQ job of a dispatch by its token.

The id of a job names its queue. The record has the token only: which queue it was depends on the routes that
the coordinator had then. So every queue that ever had a job is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.redis_rq.connection import Client, execute_pipeline, translate_errors
from orchestrator.redis_rq.keys import Keys, job_id_of


def find_job(client: Client, keys: Keys, token: str, fields: Sequence[str]) -> tuple[str, list[Any]] | None:
    """The id of a job and these fields of its hash, of which the first exists; None when there is no job."""
    with translate_errors():
        queues: Any = client.hkeys(keys.sequences)
    ids = list(dict.fromkeys(job_id_of(str(queue), token) for queue in sorted(queues)))
    with client.pipeline(transaction=False) as pipe:
        for job_id in ids:
            pipe.hmget(keys.rq_job(job_id), fields)
        found = execute_pipeline(pipe)
    jobs = zip(ids, found, strict=True)
    return next(((job_id, one) for job_id, one in jobs if isinstance(one, list) and one[0] is not None), None)
