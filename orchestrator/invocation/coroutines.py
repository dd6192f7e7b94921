"""Executors that are written `async def`, called from where nothing is async.

The work-horse of every step imports this: asyncio is loaded only for an executor that needs it.
"""

from __future__ import annotations

from types import CoroutineType
from typing import Any


def await_result(returned: Any) -> Any:
    """What an executor has returned; of a coroutine, what becomes of it on an event loop of its own."""
    if not isinstance(returned, CoroutineType):
        return returned
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(returned)
    return _elsewhere(returned)


def _elsewhere(coroutine: CoroutineType[Any, Any, Any]) -> Any:
    """This thread runs a loop already, in which nobody may wait."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, thread_name_prefix="awaiting") as threads:
        return threads.submit(asyncio.run, coroutine).result()
