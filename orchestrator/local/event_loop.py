"""The event loop of this process: one thread runs the coroutines of all `async def` executors.

A coroutine that blocks its thread, or does not end when it is cancelled, would hold up all others. The next
coroutine then gets a new loop in a new thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from types import CoroutineType
from typing import Any

logger = logging.getLogger(__name__)

CANCEL_GRACE_S = 1.0
"""How long a cancelled coroutine may clean up before its loop counts as blocked."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


class CoroutineStopped(Exception):
    """A coroutine was cancelled because its result is no longer needed."""


def await_in_loop(
    coroutine: CoroutineType[Any, Any, Any], on_begin: Callable[[Callable[[], object]], object]
) -> Any:
    """Run a coroutine in the loop and return its result. `on_begin` receives a function that cancels it;
    CoroutineStopped is raised then, at once."""
    loop, ended = _running_loop(), threading.Event()
    future: Future[tuple[Any, BaseException | None]] = asyncio.run_coroutine_threadsafe(
        _guard(coroutine, ended), loop
    )
    on_begin(future.cancel)
    try:
        output, error = future.result()
    except CancelledError:
        if not ended.wait(CANCEL_GRACE_S):
            _replace(loop)
        raise CoroutineStopped from None
    if error is not None:
        raise error
    return output


async def _guard(
    coroutine: CoroutineType[Any, Any, Any], ended: threading.Event
) -> tuple[Any, BaseException | None]:
    """Return the result or the exception: a SystemExit that leaves a task would end the whole loop."""
    try:
        return await coroutine, None
    except BaseException as error:
        return None, error
    finally:
        ended.set()


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(
                target=_run_forever, args=[_loop], name="orchestrator-event-loop", daemon=True
            ).start()
        return _loop


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop, although an executor may stop it or leave a task that calls sys.exit()."""
    while not loop.is_closed():
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            logger.warning("a task that no step awaits raised %s", type(error).__name__)


def _replace(blocked: asyncio.AbstractEventLoop) -> None:
    """Let the next coroutine start a new loop. This one stays with the coroutines that it has."""
    global _loop
    with _lock:
        if _loop is blocked:
            _loop = None
            logger.warning(
                "an async step did not end %g s after it was cancelled: others get a new event loop",
                CANCEL_GRACE_S,
            )


def _forget_loop() -> None:
    """In a forked child: the thread of its parent's loop does not exist here."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_loop)
