"""PartialCommits: repairs executions that a commit has written without some of their keys.

The record of such an execution is whole, and its other keys follow from the record. commit.lua lists the
execution until a check has found nothing wrong with it. It also lists members that it could not remove, each
with its key: the record no longer names them.
"""

from __future__ import annotations

import logging
from typing import Any

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
        """Repair some of what is listed. What cannot be repaired yet stays in the list."""
        with translate_errors():
            listed: Any = self._client.srandmember(self._keys.partial, BATCH_SIZE)
            for name in listed:
                self._repair(name)

    def _repair(self, name: str) -> None:
        """Repair an entry. A check that finds nothing ends it; a repair may fail in part as well."""
        key, is_member, member = name.partition("\n")
        if is_member:
            report = self._verifier.verify_member(key, member, name)
        else:
            report = self._verifier.verify_record(name, name)
        found = report.to_check_again
        if found != self._reported.pop(name, []):
            for one in found:
                state = "repaired" if one.is_repaired else "not repaired yet"
                place = f"{one.finding.code} {one.finding.where}".strip()
                extra = {"execution": one.execution}
                logger.warning("%s: %s: %s", place, one.finding.words, state, extra=extra)
        if found:
            self._reported[name] = found
