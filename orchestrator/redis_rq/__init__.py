"""Layer 3, storage and queue: every Redis command, every key and every RQ job.

RedisStore and RqRunner are for Backend. Each is imported on first use: the work-horse of every step imports
this package, and must not load what it does not use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.redis_rq.runner import RqRunner
    from orchestrator.redis_rq.store import RedisStore

__all__ = ["RedisStore", "RqRunner"]

_HOMES = {"RedisStore": "orchestrator.redis_rq.store", "RqRunner": "orchestrator.redis_rq.runner"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
