"""Letters, written and delivered. Nothing here knows who calls it: these are plain functions."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal, NotRequired, TypedDict

__all__ = ["deliver_letter", "write_letter"]

GREETINGS = {"en": "Dear", "de": "Guten Tag"}


class Letter(TypedDict):
    name: str
    language: NotRequired[Literal["en", "de"]]


class Delivery(TypedDict):
    letter: str
    stops: int


def write_letter(inputs: Letter) -> dict[str, Any]:
    """Write a letter to somebody, in a language that we speak."""
    return {"letter": f"{GREETINGS[inputs.get('language', 'en')]} {inputs['name']},"}


async def deliver_letter(
    inputs: Delivery, context: dict[str, Any], heartbeat: Callable[..., None]
) -> dict[str, Any]:
    """Carry a letter from stop to stop.

    The receipt is that of the delivery, and not of the attempt: a letter that is carried twice has one.
    """
    for stop in range(1, inputs["stops"] + 1):
        await asyncio.sleep(0.01)
        heartbeat(stop / inputs["stops"], note=f"at stop {stop}")
    return {"receipt": context["idempotency_key"], "carried": inputs["letter"]}
