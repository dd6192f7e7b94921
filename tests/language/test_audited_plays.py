"""Workflows made by chance are legal at every moment: an audit finds nothing, whatever happens to them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from language.memory_play import MemoryPlay
from language.random_specs import quiet_case, racing_case
from language.test_random_specs import seeds
from orchestrator.application.audit.history import audit
from orchestrator.application.records.record import WorkflowRecord


class AuditedPlay(MemoryPlay):
    """After every act, the executions that have not ended are audited; at the end, all are."""

    def _act(self, records: Sequence[WorkflowRecord], has_mail: bool) -> None:
        self._audit(records)
        super()._act(records, has_mail)

    def check_clean(self) -> None:
        self._audit(self.all_records())
        super().check_clean()

    def _audit(self, records: Sequence[WorkflowRecord]) -> None:
        for record in records:
            assert audit(record, self.history(record)) == [], record.execution_id


@pytest.mark.parametrize("seed", seeds(60))
def test_an_audit_finds_nothing_in_a_racing_case(seed: int) -> None:
    AuditedPlay(racing_case(seed), Random(seed)).play()


@pytest.mark.parametrize("seed", seeds(20))
def test_an_audit_finds_nothing_in_a_quiet_case(seed: int) -> None:
    AuditedPlay(quiet_case(seed), Random(seed)).play()
