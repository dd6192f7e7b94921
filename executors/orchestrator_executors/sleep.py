"""The executor `sleep`: waits. It occupies a worker meanwhile; the step type `delay` waits without one."""

from __future__ import annotations

import asyncio
from typing import Any, TypedDict

from .settings import check_number, merge_settings

__all__ = ["sleep"]


class SleepInputs(TypedDict, total=False):
    """`seconds`: how long to wait."""

    seconds: float


async def sleep(inputs: SleepInputs, configuration: dict[str, Any]) -> dict[str, Any]:
    """Wait for `seconds`, and return that number."""
    settings = merge_settings(configuration, inputs, SleepInputs.__annotations__)
    await asyncio.sleep(check_number("seconds", settings.get("seconds")))
    return {"seconds": settings["seconds"]}
