"""The result of one check of `doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found, how serious it is, and what to do unless it is ok. `numbers` are those in the
    text of `found`, for programs; times are in ms."""

    name: str
    level: Level
    found: str
    advice: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)


def ok(name: str, found: str, **numbers: float) -> Check:
    return Check(name, Level.OK, found, "", numbers)


def warning(name: str, found: str, advice: str, **numbers: float) -> Check:
    return Check(name, Level.WARNING, found, advice, numbers)


def problem(name: str, found: str, advice: str, **numbers: float) -> Check:
    return Check(name, Level.PROBLEM, found, advice, numbers)
