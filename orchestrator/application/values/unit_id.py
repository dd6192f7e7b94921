"""Unit ids. A unit is whatever is dispatched and has a record of its own.

    fetch         a step
    fetch#3       an item of a map
    fetch#undo    the compensation of a step
    #webhook      the webhook of an execution

Records, dictionaries, events and the wire hold unit ids as plain strings. `UnitId(unit)` reads one and is not
stored: orjson rejects a subclass of str as a key, and looking one up in a dictionary takes twice as long. The
constructors return plain strings for the same reason. Code that runs for every event creates no UnitId: it
uses `step_of` and `split_unit`, or looks the unit up among the steps.
"""

from __future__ import annotations

_SEPARATOR, _WEBHOOK = "#", "webhook"
COMPENSATION_PART = "undo"
WEBHOOK_UNIT = f"{_SEPARATOR}{_WEBHOOK}"


def step_of(unit: str) -> str:
    """The step that a unit belongs to; empty for the webhook."""
    return unit.partition(_SEPARATOR)[0]


def split_unit(unit: str) -> tuple[str, str]:
    """The step that a unit belongs to, and its part: the number of an item, `undo`, `webhook`, or nothing."""
    step_id, _, part = unit.partition(_SEPARATOR)
    return step_id, part


def item_field(unit: str) -> str:
    """The field of the item `<step>#<n>` in stored records: item:<step>:<n>."""
    step_id, _, part = unit.partition(_SEPARATOR)
    return f"item:{step_id}:{part}"


class UnitId(str):
    __slots__ = ()

    @staticmethod
    def for_item(step_id: str, index: int | str) -> str:
        return f"{step_id}{_SEPARATOR}{index}"

    @staticmethod
    def for_compensation(step_id: str) -> str:
        return f"{step_id}{_SEPARATOR}{COMPENSATION_PART}"

    @property
    def step_id(self) -> str:
        """The step that this unit belongs to; empty for the webhook."""
        return self.partition(_SEPARATOR)[0]

    @property
    def part(self) -> str:
        """What follows the step: the number of an item, `undo`, `webhook`, or nothing for a step."""
        return self.partition(_SEPARATOR)[2]

    @property
    def is_step(self) -> bool:
        return _SEPARATOR not in self

    @property
    def is_item(self) -> bool:
        return self.partition(_SEPARATOR)[2] not in ("", COMPENSATION_PART, _WEBHOOK)

    @property
    def item_index(self) -> int | None:
        """The position of an item in its map; None for every other unit."""
        part = self.part
        return int(part) if part.isdecimal() else None

    @property
    def is_compensation(self) -> bool:
        return self.partition(_SEPARATOR)[2] == COMPENSATION_PART

    @property
    def is_webhook(self) -> bool:
        return self == WEBHOOK_UNIT
