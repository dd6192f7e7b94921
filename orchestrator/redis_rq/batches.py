"""Many of something, so many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def batches(found: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(found)
    while batch := list(islice(rest, size)):
        yield batch
