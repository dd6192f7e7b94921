"""Answers an operator's questions: why is this execution stuck, is the system in order, is a process healthy.

Nothing here writes to Redis. `why` adds what Redis shows to the reasons of a record
(`application/explain/reasons.py`), `run_checks` checks a Redis server and the processes that use it, and
`health` is for probes.
"""

from orchestrator.deprecation import renamed_names
from orchestrator.diagnosis.checks import Check, Level
from orchestrator.diagnosis.doctor import run_checks
from orchestrator.diagnosis.health import Health, ProcessFilter, health
from orchestrator.diagnosis.why import Explanation, UnknownStep, why

__all__ = [
    "Check",
    "Explanation",
    "Health",
    "Level",
    "ProcessFilter",
    "UnknownStep",
    "health",
    "run_checks",
    "why",
]

__getattr__ = renamed_names(
    __name__, {"Whose": "ProcessFilter", "Why": "Explanation", "examine": "run_checks"}
)
