"""The event loop of a crew: the coroutines of all its runs take turns upon it, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any

Stopper = Callable[[], Any]


class Loop:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="event loop", daemon=True)
        self._thread.start()

    def awaited(self, returned: Any, on_begin: Callable[[Stopper], Any]) -> Any:
        """What becomes of a coroutine; anything else is returned as it is. `on_begin` gets what cancels it.

        It ends when the coroutine has ended, also after it was cancelled: what it does then still runs here.
        """
        if not isinstance(returned, CoroutineType):
            return returned
        held = self._held(returned, on_begin)
        output, error = asyncio.run_coroutine_threadsafe(held, self._loop).result()
        if error is not None:
            raise error
        return output

    async def _held(
        self, coroutine: Coroutine[Any, Any, Any], on_begin: Callable[[Stopper], Any]
    ) -> tuple[Any, BaseException | None]:
        """What it brought, or what it raised: sys.exit() in a task would end the whole loop."""
        task = asyncio.current_task()
        assert task is not None, "this runs as a task"
        on_begin(lambda: self._loop.call_soon_threadsafe(task.cancel))
        try:
            return await coroutine, None
        except BaseException as error:
            return None, error
