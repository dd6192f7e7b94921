"""The event loop of a crew: the coroutines of all its runs take turns upon it, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any

from orchestrator.worker.fork_guard import exit_if_forked

logger = logging.getLogger(__name__)

Stopper = Callable[[], Any]


class SharedEventLoop:
    """`on_broken` is called when it cannot go on: whoever was on it would wait for ever."""

    def __init__(self, on_broken: Callable[[], Any]) -> None:
        self._loop, self._on_broken = asyncio.new_event_loop(), on_broken
        self._thread = threading.Thread(target=self._turn, name="event loop", daemon=True)
        self._thread.start()

    def _turn(self) -> None:
        """For ever. An executor may stop the loop, or leave a task on it that calls sys.exit()."""
        try:
            while not self._loop.is_closed():
                try:
                    self._loop.run_forever()
                except (SystemExit, KeyboardInterrupt) as error:
                    logger.warning("a task that nobody waits for raised %s", type(error).__name__)
        except BaseException:
            logger.exception("the event loop cannot go on")
        self._on_broken()

    def await_result(self, returned: Any, on_begin: Callable[[Stopper], Any]) -> Any:
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
        process = os.getpid()
        try:
            return await coroutine, None
        except BaseException as error:
            return None, error
        finally:
            exit_if_forked(process)
