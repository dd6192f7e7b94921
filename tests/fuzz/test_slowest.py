"""Plays a few cases of the search for the slowest turn. scripts/fuzz --slowest plays more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from fuzz.slowest import FAMILIES, play
from fuzz.targets import world_on
from orchestrator.application.engine.turn import MAX_TURN_WORK
from orchestrator.application.expressions.meter import MAX_WORK
from orchestrator.application.spec.validation import check_spec

ROOT = Path(__file__).resolve().parents[2]
SEED = 7
MAX_UNITS = MAX_TURN_WORK + 2 * MAX_WORK
"""What a turn may spend: its work, and one event that ends both an item and its map."""


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "documents"])
def test_the_documents_of_a_family_are_accepted(family: str) -> None:
    for seed in range(5):
        check_spec(FAMILIES[family](Random(seed)).documents[0])


@pytest.mark.parametrize("family", ["conditions", "joins", "compensations", "signals"])
def test_no_turn_of_heavy_expressions_spends_more_than_it_may(family: str, redis_url: str) -> None:
    with world_on(redis_url) as world:
        turns = list(play(world, family, SEED))

    assert turns
    assert max(turn.work for turn in turns[1:]) <= MAX_UNITS, "the first turn reads the document"


def test_the_script_prints_how_to_play_a_case_again() -> None:
    command = [
        sys.executable,
        str(ROOT / "scripts" / "fuzz"),
        "--slowest",
        "--cases",
        "1",
        "--seed",
        "3",
        "loops",
    ]

    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})

    assert "units" in done.stdout
    assert "scripts/fuzz --slowest --cases 1 --seed 3 loops" in done.stdout
    assert "1 cases" in done.stdout
