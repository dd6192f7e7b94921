"""The step dependency graph of a spec, and walks over it. `graph_builder.py` builds it.

Nothing here recurses, and nothing compares all steps with all others: specs have up to 10,000 steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Edges = Mapping[str, Sequence[str]]

_BATCH = 1024


@dataclass(frozen=True, slots=True)
class Graph:
    """The edges of one valid spec, declared and implied, everything in spec order."""

    order: tuple[str, ...]
    index: dict[str, int]
    parents: dict[str, tuple[str, ...]]
    children: dict[str, tuple[str, ...]]
    roots: tuple[str, ...]
    eager: frozenset[str] = frozenset()
    """Steps that must be judged whenever a parent ends: their join is a number or an expression."""
    switches: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For each step that switches list, which ones do."""
    max_id_segments: int = 1
    """Of one id: ids may contain dots, as paths do, and a path may be far longer."""

    def may_join(self, step_id: str, unmet: int) -> bool:
        """Whether a step with so many parents that are not final is to be judged."""
        return not unmet or (step_id in self.eager and unmet < len(self.parents[step_id]))

    def descendants(self, ids: Iterable[str]) -> list[str]:
        """All that depends on these steps, directly or not, without them."""
        given = set(ids)
        seen: set[str] = set()
        todo = list(given)
        while todo:
            for child in self.children[todo.pop()]:
                if child not in seen:
                    seen.add(child)
                    todo.append(child)
        return sorted(seen - given, key=self.index.__getitem__)

    def related(self, pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """The pairs of which one step is above the other."""
        before = topological_order(self.parents)
        swapped = {(lower, upper) for upper, lower in pairs}
        up = descents(swapped, self.parents, before)
        return descents(pairs, self.parents, before) | {(lower, upper) for upper, lower in up}

    def find_step(self, segments: Sequence[str]) -> tuple[str, Sequence[str]] | None:
        """The step a dotted path means, and the rest of the path: the longest declared id that fits."""
        return longest_id(self.index, segments, self.max_id_segments)

    def find_target(self, text: str) -> str | None:
        """The step that a `set` means by "X", "steps.X" or "steps.X.status"."""
        if text in self.index:
            return text
        root, *segments = text.split(".")
        found = self.find_step(segments) if root == "steps" else None
        return found[0] if found and found[1] in ([], ["status"]) else None


def topological_order(parents: Edges) -> list[str]:
    """The steps, parents first; those on a cycle or below one are missing."""
    children = reversed_edges(parents)
    unmet = {step_id: len(above) for step_id, above in parents.items()}
    order = [step_id for step_id, count in unmet.items() if not count]
    for step_id in order:  # grows while we walk it
        for child in children[step_id]:
            unmet[child] -= 1
            if not unmet[child]:
                order.append(child)
    return order


def reversed_edges(parents: Edges) -> dict[str, list[str]]:
    children: dict[str, list[str]] = {step_id: [] for step_id in parents}
    for step_id, above in parents.items():
        for parent in above:
            children[parent].append(step_id)
    return children


def descents(pairs: set[tuple[str, str]], parents: Edges, before: Sequence[str]) -> set[tuple[str, str]]:
    """The pairs (upper, lower) of which the second is a descendant of the first.

    One walk over the graph answers for a whole batch of uppers: a step's bits are the uppers above it.
    """
    uppers = sorted({upper for upper, _ in pairs})
    found: set[tuple[str, str]] = set()
    for start in range(0, len(uppers), _BATCH):
        bit = {upper: 1 << n for n, upper in enumerate(uppers[start : start + _BATCH])}
        above: dict[str, int] = {}
        for step_id in before:
            bits = 0
            for parent in parents[step_id]:
                bits |= above[parent] | bit.get(parent, 0)
            above[step_id] = bits
        found |= {(upper, lower) for upper, lower in pairs if bit.get(upper, 0) & above[lower]}
    return found


def longest_id(
    index: Mapping[str, int], segments: Sequence[str], most: int
) -> tuple[str, Sequence[str]] | None:
    for end in range(min(len(segments), most), 0, -1):
        step_id = ".".join(segments[:end])
        if step_id in index:
            return step_id, segments[end:]
    return None


def max_segments_of(ids: Iterable[str]) -> int:
    return max((step_id.count(".") + 1 for step_id in ids), default=1)
