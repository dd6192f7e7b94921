"""Run `async def` executors from synchronous code.

The work-horse of every step imports this: asyncio is loaded only for an executor that needs it.
"""

from __future__ import annotations

from types import CoroutineType
from typing import Any


def await_result(returned: Any) -> Any:
    """The value that an executor returned. A coroutine is run on its own event loop."""
    if not isinstance(returned, CoroutineType):
        return returned
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(returned)
    return _run_in_thread(returned)


def _run_in_thread(coroutine: CoroutineType[Any, Any, Any]) -> Any:
    """Run a coroutine in another thread: this one already runs an event loop, which must not block."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, thread_name_prefix="awaiting") as threads:
        return threads.submit(asyncio.run, coroutine).result()
