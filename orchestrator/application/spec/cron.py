"""Cron expressions of five fields in a time zone, and their slots: the instants at which they fire.

A cron that lists hours means local times. When the clock goes forward, a skipped local time fires at the
first instant after the gap. When the clock goes back, a repeated local time fires once, at its first
occurrence. A cron for every hour follows elapsed time instead: `*/5 * * * *` fires during both passes of a
repeated hour, and does not make up for a skipped one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from orchestrator.application.values.short_key_cache import ShortKeyCache

DAY = timedelta(days=1)
MAX_CACHED_CRON_CHARS = 128
MAX_DAYS_OF_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIVE_FIELDS = "must have five fields: minute, hour, day, month, weekday"


@dataclass(frozen=True, slots=True)
class Cron:
    """The values that the five fields allow; Sunday is weekday 0.

    `matches_day_or_weekday`: both day and weekday are restricted, so a date needs to match only one of them.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    matches_day_or_weekday: bool

    @property
    def is_hourly(self) -> bool:
        return len(self.hours) == 24

    def matches_date(self, day: date) -> bool:
        is_day, is_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (
            is_day or is_weekday if self.matches_day_or_weekday else is_day and is_weekday
        )


# ---- parsing


def _parse_cron(text: str) -> Cron:
    fields = MACROS.get(text.strip().lower(), text).split()
    if text.lstrip().startswith("@") and len(fields) == 1:
        raise ValueError(f"{fields[0]!r} is not one of {', '.join(MACROS)}")
    if len(fields) != 5:
        raise ValueError(FIVE_FIELDS)
    minutes, hours, days, months, weekdays = (
        parser.parse(field) for parser, field in zip(_PARSERS, fields, strict=True)
    )
    cron = Cron(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(days),
        frozenset(months),
        frozenset(weekday % 7 for weekday in weekdays),
        matches_day_or_weekday=not (fields[2].startswith("*") or fields[4].startswith("*")),
    )
    if not cron.matches_day_or_weekday and all(min(days) > MAX_DAYS_OF_MONTH[month - 1] for month in months):
        raise ValueError(f"never fires: none of its months has a day {min(days)}")
    return cron


parse_cron: Callable[[str], Cron] = ShortKeyCache(_parse_cron, 256, MAX_CACHED_CRON_CHARS).__getitem__
"""Parse a cron; a ValueError says which field is wrong, and why."""


@dataclass(frozen=True, slots=True)
class _FieldParser:
    name: str
    min: int
    max: int
    names: Mapping[str, int] = field(default_factory=dict)

    def parse(self, text: str) -> set[int]:
        values: set[int] = set()
        for part in text.split(","):
            values.update(self._parse_part(part))
        return values

    def _parse_part(self, part: str) -> range:
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{self.name} {part!r} is not a number, a range such as 1-5, *, or */n")
        first, last, step = match["first"], match["last"], match["step"]
        if step is not None and first != "*" and last is None:
            raise ValueError(f"{self.name} {part!r} has a step but no range: write {first}-{self.max}/{step}")
        start = self.min if first == "*" else self._parse_number(first)
        if last is None:
            end = self.max if first == "*" else start
        else:
            end = self._parse_number(last)
            end = 7 if self.max == 7 and end == 0 < start else end  # fri-sun
        if start > end:
            raise ValueError(f"{self.name} {part!r} goes downwards: write two ranges, with a comma")
        width = 1 if step is None else int(step)
        if not 1 <= width <= self.max:
            raise ValueError(f"{self.name} {part!r} has a step that is not between 1 and {self.max}")
        return range(start, end + 1, width)

    def _parse_number(self, text: str) -> int:
        number = int(text) if text.isdigit() else self.names.get(text.lower(), -1)
        if not self.min <= number <= self.max:
            names = f", nor {', '.join(self.names)}" if self.names else ""
            raise ValueError(f"{self.name} {text!r} is not between {self.min} and {self.max}{names}")
        return number


_PART = re.compile(
    r"(?P<first>\*|[0-9]{1,4}|[A-Za-z]{1,9})(-(?P<last>(?<!\*-)([0-9]{1,4}|[A-Za-z]{1,9})))?(/(?P<step>[0-9]{1,4}))?"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_PARSERS = (
    _FieldParser("minute", 0, 59),
    _FieldParser("hour", 0, 23),
    _FieldParser("day", 1, 31),
    _FieldParser("month", 1, 12, {name: n for n, name in enumerate(_MONTHS, 1)}),
    _FieldParser("weekday", 0, 7, {name: n for n, name in enumerate(_WEEKDAYS)}),
)


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Return the time zones of this machine, except names that mean something else on each machine."""
    return frozenset(available_timezones()) - {"localtime", "Factory"}


# ---- slots


def next_after(cron: str, timezone: str, after_ms: int) -> int:
    """Return the first slot after this time, in ms."""
    return next(iter_slots(cron, timezone, after_ms))


def iter_slots(cron: str, timezone: str, after_ms: int) -> Iterator[int]:
    """Yield every slot after this time, in ms, without end."""
    parsed, zone, last_ms = parse_cron(cron), ZoneInfo(timezone), after_ms
    day = datetime.fromtimestamp(after_ms // 1000, zone).date() - DAY
    while True:
        if parsed.matches_date(day):
            for slot_ms in _slots_of_day(parsed, zone, day):
                if slot_ms > last_ms:
                    yield slot_ms
                    last_ms = slot_ms
        day += DAY


def _slots_of_day(cron: Cron, zone: ZoneInfo, day: date) -> list[int]:
    """Return the slots of one day, in order. Several skipped local times become one slot."""
    midnight = datetime(day.year, day.month, day.day)
    before, after = _offset(midnight, zone, 0), _offset(midnight + DAY, zone, 1)
    if before == after:  # nearly every day: the clock does not change
        start_s = _utc_seconds(midnight - before)
        return [
            1000 * (start_s + 3600 * hour + 60 * minute) for hour in cron.hours for minute in cron.minutes
        ]
    local = [midnight.replace(hour=hour, minute=minute) for hour in cron.hours for minute in cron.minutes]
    if cron.is_hourly:
        return sorted({1000 * at for time in local for at in _occurrences(time, zone)})
    return sorted({1000 * (_occurrences(time, zone) or [_end_of_gap(time, zone)])[0] for time in local})


def _occurrences(local: datetime, zone: ZoneInfo) -> list[int]:
    """Return the times, in seconds, at which a clock shows this local time: one, two or none."""
    both = {_utc_seconds(local - _offset(local, zone, fold)) for fold in (0, 1)}
    return [at for at in sorted(both) if datetime.fromtimestamp(at, zone).replace(tzinfo=None) == local]


def _end_of_gap(local: datetime, zone: ZoneInfo) -> int:
    """Return the first second after the gap that skips this local time."""
    before, after = _offset(local, zone, 0), _offset(local, zone, 1)
    low, high = _utc_seconds(local - after), _utc_seconds(local - before)
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high


def _offset(local: datetime, zone: ZoneInfo, fold: int) -> timedelta:
    """Return the UTC offset at a local time: before a clock change there (`fold` 0), or after it (1)."""
    offset = local.replace(tzinfo=zone, fold=fold).utcoffset()
    assert offset is not None, "a ZoneInfo always has an offset"
    return offset


def _utc_seconds(utc: datetime) -> int:
    return int(utc.replace(tzinfo=UTC).timestamp())
