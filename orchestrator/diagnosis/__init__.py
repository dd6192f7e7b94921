"""What an operator asks: why does this not get on, is everything in order, is this process well.

Nothing here writes. `why` adds what only Redis knows to the reasons of a record
(`application/explain/reasons.py`),
`examine` looks at all of a Redis and those who serve it, and `health` is for probes.
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
