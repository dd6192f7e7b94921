"""A simulation that cannot tell when a fence is missing is worth nothing: each mutant is noticed."""

from __future__ import annotations

import pytest

from effort import IS_FULL
from simulation.mutants import MUTANTS
from simulation.test_simulation import played

SEEDS = 100
SOON = [
    "no version check",
    "steps accept late results",
    "no start dedupe",
    "acknowledged first",
    "no takeover",
    "orphans start",
    "slot granted twice",
    "divided and left",
]
"""Mutants that are noticed within a few seeds. The others take up to a minute each."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MUTANTS if IS_FULL else SOON)
def test_a_missing_fence_is_noticed_within_a_hundred_seeds(name: str) -> None:
    found = played("--mutant", name, "--seeds", str(SEEDS))

    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.startswith("seed ")
