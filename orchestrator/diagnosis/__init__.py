"""What an operator asks: why does this not get on, is everything in order, is this process well.

Nothing here writes. `why` adds what only Redis knows to the reasons of a record
(`application/explain/reasons.py`),
`examine` looks at all of a Redis and those who serve it, and `health` is for probes.
"""

from orchestrator.diagnosis.checks import Check, Level
from orchestrator.diagnosis.doctor import examine
from orchestrator.diagnosis.health import Health, Whose, health
from orchestrator.diagnosis.why import UnknownStep, Why, why

__all__ = ["Check", "Health", "Level", "UnknownStep", "Whose", "Why", "examine", "health", "why"]
