"""The event loop of a concurrent child: one thread runs the coroutines of all its steps."""

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
    """An event loop in a thread. It calls `on_broken` when it cannot go on, since its steps would hang."""

    def __init__(self, on_broken: Callable[[], Any]) -> None:
        self._loop, self._on_broken = asyncio.new_event_loop(), on_broken
        self._thread = threading.Thread(target=self._run_loop, name="event loop", daemon=True)
        self._thread.start()

    def _run_loop(self) -> None:
        """Run the loop for ever, although an executor may stop it or leave a task that calls sys.exit()."""
        try:
            while not self._loop.is_closed():
                try:
                    self._loop.run_forever()
                except (SystemExit, KeyboardInterrupt) as error:
                    logger.warning("a task that no step awaits raised %s", type(error).__name__)
        except BaseException:
            logger.exception("the event loop has failed")
        self._on_broken()

    def await_result(self, returned: Any, on_begin: Callable[[Stopper], Any]) -> Any:
        """Run a coroutine and return its result; return any other value unchanged.

        `on_begin` receives a function that cancels the coroutine. A cancelled coroutine may still clean up;
        this function returns only when the coroutine has ended.
        """
        if not isinstance(returned, CoroutineType):
            return returned
        guarded = self._guard(returned, on_begin)
        output, error = asyncio.run_coroutine_threadsafe(guarded, self._loop).result()
        if error is not None:
            raise error
        return output

    async def _guard(
        self, coroutine: Coroutine[Any, Any, Any], on_begin: Callable[[Stopper], Any]
    ) -> tuple[Any, BaseException | None]:
        """Return the result or the exception: a SystemExit that leaves a task would end the whole loop."""
        task = asyncio.current_task()
        assert task is not None, "run_coroutine_threadsafe runs this as a task"
        on_begin(lambda: self._loop.call_soon_threadsafe(task.cancel))
        process = os.getpid()
        try:
            return await coroutine, None
        except BaseException as error:
            return None, error
        finally:
            exit_if_forked(process)
