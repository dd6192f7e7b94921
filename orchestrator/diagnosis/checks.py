"""The result of one check of `doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found, how serious it is, and what to do unless it is ok."""

    name: str
    level: Level
    found: str
    advice: str = ""


def ok(name: str, found: str) -> Check:
    return Check(name, Level.OK, found)


def warning(name: str, found: str, advice: str) -> Check:
    return Check(name, Level.WARNING, found, advice)


def problem(name: str, found: str, advice: str) -> Check:
    return Check(name, Level.PROBLEM, found, advice)
