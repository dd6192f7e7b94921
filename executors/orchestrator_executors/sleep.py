"""Waits: the executor `sleep`. It keeps a place of its worker; `delay` of a step waits without one."""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from .settings import merge_settings, number

__all__ = ["sleep"]


class SleepInputs(TypedDict, total=False):
    """`seconds`: how long."""

    seconds: float


async def sleep(inputs: SleepInputs, configuration: dict[str, Any]) -> dict[str, Any]:
    """Wait for `seconds`, and say how many they were."""
    settings = merge_settings(configuration, inputs, SleepInputs.__annotations__)
    seconds = number("seconds", settings.get("seconds"))
    await asyncio.sleep(seconds)
    return {"seconds": settings["seconds"]}
