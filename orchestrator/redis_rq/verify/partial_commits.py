"""PartialCommits: repairs executions that a commit has written without some of their keys.

The record of such an execution is whole, and its other keys follow from the record. commit.lua lists the
execution until a check has found nothing wrong with it.
"""

from __future__ import annotations

import logging
from typing import Any

from orchestrator.application.errors import RecordNotFound
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.verify.verifier import ReportedFinding, Verifier
from orchestrator.settings import RETENTION_S

logger = logging.getLogger(__name__)

BATCH_SIZE = 20
"""How many executions are repaired at a time: other events wait meanwhile."""


class PartialCommits:
    def __init__(self, client: Client, keys: Keys, retention_s: int = RETENTION_S) -> None:
        self._client, self._keys = client, keys
        self._verifier = Verifier(client, keys, retention_s, repairs=True)
        self._reported: dict[str, list[ReportedFinding]] = {}

    def repair(self) -> None:
        """Repair some of the listed executions. One that cannot be repaired yet stays in the list."""
        with translate_errors():
            listed: Any = self._client.srandmember(self._keys.partial, BATCH_SIZE)
            for execution in listed:
                if self._is_repaired(execution):
                    self._client.srem(self._keys.partial, execution)
                    self._reported.pop(execution, None)

    def _is_repaired(self, execution: str) -> bool:
        try:
            report = self._verifier.verify_record(execution)
        except RecordNotFound:
            return True
        # A finding without a repair is wrong for another reason, except when the keys could not be compared.
        found = [one for one in report.found if one.is_repaired or one.finding.code == "unreadable"]
        if found != self._reported.get(execution, []):
            for one in found:
                state = "repaired" if one.is_repaired else "not repaired yet"
                place = f"{one.finding.code} {one.finding.where}".strip()
                logger.warning("%s: %s: %s", place, one.finding.words, state, extra={"execution": execution})
        self._reported[execution] = found
        # A repair may fail in part as well, so only a check that finds nothing ends it.
        return not found and not report.busy
