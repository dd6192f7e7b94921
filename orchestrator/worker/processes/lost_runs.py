"""Reports a run as lost as soon as its process has died. Otherwise the sweep would find it later."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from orchestrator.application.errors import Unavailable
from orchestrator.application.records.events import LostEvent
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.event_codec import event_fields
from orchestrator.worker.harness import dispatch_fields
from orchestrator.worker.step_call import log_fields

logger = logging.getLogger(__name__)


def report_lost(client: Client, run: Mapping[str, Any], reason: str) -> bool:
    """Publish a lost event; False when Redis is unavailable. `run` has at least the identifying fields of a
    payload, and `events`."""
    logger.warning("%s", reason, extra=log_fields(run))
    fields: dict[Any, Any] = dict(event_fields(LostEvent(*dispatch_fields(run), reason)))
    try:
        with translate_errors():
            client.xadd(run["events"], fields)
    except Unavailable as error:
        logger.warning("cannot report the lost run; the sweep will find it: %s", error, extra=log_fields(run))
        return False
    return True
