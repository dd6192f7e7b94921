"""Cron: five fields and a time zone, and the instants that they mean.

A cron that names hours means local times. Where a clock is put forward, a local time that it leaves out falls
on the first instant after the leap; where a clock is put back, a local time that comes twice means the first.
A cron for every hour means no local time but minutes of hours that pass: it follows the clock as it goes, so
`*/5 * * * *` neither falls silent while an hour is repeated nor makes up for an hour that never was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

DAY = timedelta(days=1)
LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
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
    """What the five fields allow; weekdays count from Sunday. `matches_day_or_weekday`: day and weekday
    are both restricted, and one of them is enough."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    matches_day_or_weekday: bool

    @property
    def is_hourly(self) -> bool:
        return len(self.hours) == 24

    def has(self, day: date) -> bool:
        is_day, is_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (
            is_day or is_weekday if self.matches_day_or_weekday else is_day and is_weekday
        )


# ---- reading


@lru_cache(maxsize=256)
def parse_cron(text: str) -> Cron:
    """The fields of a cron; ValueError says what is wrong with it."""
    words = MACROS.get(text.strip().lower(), text).split()
    if text.lstrip().startswith("@") and len(words) == 1:
        raise ValueError(f"{words[0]!r} is not one of {', '.join(MACROS)}")
    if len(words) != 5:
        raise ValueError(FIVE_FIELDS)
    minutes, hours, days, months, weekdays = (
        one.read(word) for one, word in zip(_FIELDS, words, strict=True)
    )
    cron = Cron(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(days),
        frozenset(months),
        frozenset(weekday % 7 for weekday in weekdays),
        matches_day_or_weekday=not (words[2].startswith("*") or words[4].startswith("*")),
    )
    if not cron.matches_day_or_weekday and all(min(days) > LONGEST_MONTHS[month - 1] for month in months):
        raise ValueError(f"never comes: no month of it has a day {min(days)}")
    return cron


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    least: int
    most: int
    words: Mapping[str, int] = field(default_factory=dict)

    def read(self, text: str) -> set[int]:
        found: set[int] = set()
        for part in text.split(","):
            found.update(self._part(part))
        return found

    def _part(self, part: str) -> range:
        fitting = _PART.fullmatch(part)
        if fitting is None:
            raise ValueError(f"{self.name} {part!r} is not a number, a range such as 1-5, *, or */n")
        first, last, step = fitting["first"], fitting["last"], fitting["step"]
        if step is not None and first != "*" and last is None:
            raise ValueError(
                f"{self.name} {part!r} has a step but no range: write {first}-{self.most}/{step}"
            )
        least = self.least if first == "*" else self._number(first)
        if last is None:
            most = self.most if first == "*" else least
        else:
            most = self._number(last)
            most = 7 if self.most == 7 and most == 0 < least else most  # fri-sun
        if least > most:
            raise ValueError(f"{self.name} {part!r} goes downwards: write two ranges, with a comma")
        width = 1 if step is None else int(step)
        if not 1 <= width <= self.most:
            raise ValueError(f"{self.name} {part!r} has a step that is not between 1 and {self.most}")
        return range(least, most + 1, width)

    def _number(self, text: str) -> int:
        number = int(text) if text.isdigit() else self.words.get(text.lower(), -1)
        if not self.least <= number <= self.most:
            names = f", nor {', '.join(self.words)}" if self.words else ""
            raise ValueError(f"{self.name} {text!r} is not between {self.least} and {self.most}{names}")
        return number


_PART = re.compile(
    r"(?P<first>\*|[0-9]{1,4}|[A-Za-z]{1,9})(-(?P<last>(?<!\*-)([0-9]{1,4}|[A-Za-z]{1,9})))?(/(?P<step>[0-9]{1,4}))?"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day", 1, 31),
    _Field("month", 1, 12, {word: n for n, word in enumerate(_MONTHS, 1)}),
    _Field("weekday", 0, 7, {word: n for n, word in enumerate(_WEEKDAYS)}),
)


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """The time zones that are known here, but for those that each machine understands in its own way."""
    return frozenset(available_timezones()) - {"localtime", "Factory"}


# ---- instants


def next_after(cron: str, timezone: str, after_ms: int) -> int:
    return next(slots(cron, timezone, after_ms))


def slots(cron: str, timezone: str, after_ms: int) -> Iterator[int]:
    """Every instant of a cron after this one, in ms, without end."""
    parsed, zone, last_ms = parse_cron(cron), ZoneInfo(timezone), after_ms
    day = datetime.fromtimestamp(after_ms // 1000, zone).date() - DAY
    while True:
        if parsed.has(day):
            for instant_ms in _instants(parsed, zone, day):
                if instant_ms > last_ms:
                    yield instant_ms
                    last_ms = instant_ms
        day += DAY


def _instants(cron: Cron, zone: ZoneInfo, day: date) -> list[int]:
    """Those of one day, in order; several local times that a clock leaves out are one instant."""
    midnight = datetime(day.year, day.month, day.day)
    before, after = _offset(midnight, zone, 0), _offset(midnight + DAY, zone, 1)
    if before == after:  # as on nearly every day: the clock is not touched
        start_s = _seconds(midnight - before)
        return [
            1000 * (start_s + 3600 * hour + 60 * minute) for hour in cron.hours for minute in cron.minutes
        ]
    local = [midnight.replace(hour=hour, minute=minute) for hour in cron.hours for minute in cron.minutes]
    if cron.is_hourly:
        return sorted({1000 * at for time in local for at in _shown(time, zone)})
    return sorted({1000 * (_shown(time, zone) or [_leap(time, zone)])[0] for time in local})


def _shown(local: datetime, zone: ZoneInfo) -> list[int]:
    """When a clock shows this local time: once, twice, or never."""
    both = {_seconds(local - _offset(local, zone, fold)) for fold in (0, 1)}
    return [at for at in sorted(both) if datetime.fromtimestamp(at, zone).replace(tzinfo=None) == local]


def _leap(local: datetime, zone: ZoneInfo) -> int:
    """The first instant after the leap that leaves out this local time."""
    before, after = _offset(local, zone, 0), _offset(local, zone, 1)
    low, high = _seconds(local - after), _seconds(local - before)
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high


def _offset(local: datetime, zone: ZoneInfo, fold: int) -> timedelta:
    """How far a clock is ahead of UTC: as before a change of it that concerns this local time, or after."""
    offset = local.replace(tzinfo=zone, fold=fold).utcoffset()
    assert offset is not None, "a zone always has one"
    return offset


def _seconds(utc: datetime) -> int:
    return int(utc.replace(tzinfo=UTC).timestamp())
