"""Workflows made by chance leave Redis as it should be, at every moment: a verification finds nothing."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from language.random_specs import racing_case
from language.redis_play import RedisPlay
from language.test_random_specs import seeds, world
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.redis_rq.verify.verifier import Verifier
from worlds.redis_world import RedisWorld

__all__ = ["world"]


class VerifiedPlay(RedisPlay):
    """After every act everything is verified. No worker runs meanwhile, so none may be busy."""

    def _act(self, records: Sequence[WorkflowRecord], has_mail: bool) -> None:
        self._verify()
        super()._act(records, has_mail)

    def check_clean(self) -> None:
        self._verify()
        super().check_clean()

    def _verify(self) -> None:
        report = Verifier(self.world.client, self.world.keys).verify_all()
        assert report.found == []
        assert report.busy == []


@pytest.mark.parametrize("seed", seeds(15))
def test_a_verification_finds_nothing_in_a_racing_case(world: RedisWorld, seed: int) -> None:
    VerifiedPlay(racing_case(seed), Random(seed), world).play()
