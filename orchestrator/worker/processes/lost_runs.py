"""A run that ended without a word, reported by who saw its process die; the sweep would find it later."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from orchestrator.application.errors import Unavailable
from orchestrator.application.records.events import LostEvent
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.event_codec import event_fields
from orchestrator.worker.harness import dispatch_fields, log_fields

logger = logging.getLogger(__name__)


def describe_exit(status: int) -> str:
    """How a process has died, by what waitpid says of it."""
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {status >> 8}"


def report_lost(client: Client, run: Mapping[str, Any], reason: str) -> bool:
    """`run` is a payload, or as much of it as says which run it is; False when Redis could not be told."""
    logger.warning("%s", reason, extra=log_fields(run))
    fields: dict[Any, Any] = dict(event_fields(LostEvent(*dispatch_fields(run), reason)))
    try:
        with translate_errors():
            client.xadd(run["events"], fields)
    except Unavailable as error:
        logger.warning("cannot report it, the sweep will: %s", error, extra=log_fields(run))
        return False
    return True
