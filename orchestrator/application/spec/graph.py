"""The step dependency graph of a spec. `graph_builder.py` builds it.

A spec may have 10,000 steps and more, so nothing here recurses or compares each step with every other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Edges = Mapping[str, Sequence[str]]

_BATCH = 1024


@dataclass(frozen=True, slots=True)
class Graph:
    """Which steps of a valid spec depend on which, by declared and implied edges; ids are in spec order."""

    order: tuple[str, ...]
    index: dict[str, int]
    parents: dict[str, tuple[str, ...]]
    children: dict[str, tuple[str, ...]]
    roots: tuple[str, ...]
    eager: frozenset[str] = frozenset()
    """Steps to evaluate whenever one parent ends, because their join is a number or an expression."""
    switches: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Maps each step that a switch lists to the switches that list it."""
    max_id_segments: int = 1
    """How many segments of a path one id takes at most: ids may contain dots."""

    def may_join(self, step_id: str, unmet: int) -> bool:
        """Whether a step with this many unfinished parents must be evaluated."""
        return not unmet or (step_id in self.eager and unmet < len(self.parents[step_id]))

    def descendants(self, ids: Iterable[str]) -> list[str]:
        """Return the steps that depend on these, directly or not, without these."""
        ancestors = set(ids)
        seen: set[str] = set()
        todo = list(ancestors)
        while todo:
            for child in self.children[todo.pop()]:
                if child not in seen:
                    seen.add(child)
                    todo.append(child)
        return sorted(seen - ancestors, key=self.index.__getitem__)

    def related(self, pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return the pairs in which one step depends on the other, directly or not."""
        order = sort_topologically(self.parents)
        swapped = {(lower, upper) for upper, lower in pairs}
        upward = find_dependent_pairs(swapped, self.parents, order)
        downward = find_dependent_pairs(pairs, self.parents, order)
        return downward | {(lower, upper) for upper, lower in upward}

    def find_step(self, segments: Sequence[str]) -> tuple[str, Sequence[str]] | None:
        """Return the step at the start of a dotted path, and the rest. The longest id that fits wins."""
        return find_longest_id(self.index, segments, self.max_id_segments)

    def find_target(self, text: str) -> str | None:
        """Return the step that a `set` names as "X", "steps.X" or "steps.X.status"."""
        if text in self.index:
            return text
        root, *segments = text.split(".")
        found = self.find_step(segments) if root == "steps" else None
        return found[0] if found and found[1] in ([], ["status"]) else None


def sort_topologically(parents: Edges) -> list[str]:
    """Return the steps, parents first; steps on a cycle or below one are missing."""
    children = reverse_edges(parents)
    unmet = {step_id: len(ids) for step_id, ids in parents.items()}
    order = [step_id for step_id, count in unmet.items() if not count]
    for step_id in order:  # the list grows during the loop
        for child in children[step_id]:
            unmet[child] -= 1
            if not unmet[child]:
                order.append(child)
    return order


def reverse_edges(parents: Edges) -> dict[str, list[str]]:
    """Return the children of each step."""
    children: dict[str, list[str]] = {step_id: [] for step_id in parents}
    for step_id, ids in parents.items():
        for parent in ids:
            children[parent].append(step_id)
    return children


def find_dependent_pairs(
    pairs: set[tuple[str, str]], parents: Edges, order: Sequence[str]
) -> set[tuple[str, str]]:
    """Return the pairs (upper, lower) whose lower step is a descendant of the upper one.

    `order` has the parents first. One walk over the graph checks a batch of upper steps: the bits of a step
    are the upper steps of the batch that it descends from.
    """
    uppers = sorted({upper for upper, _ in pairs})
    found: set[tuple[str, str]] = set()
    for start in range(0, len(uppers), _BATCH):
        bit = {upper: 1 << n for n, upper in enumerate(uppers[start : start + _BATCH])}
        ancestors: dict[str, int] = {}
        for step_id in order:
            bits = 0
            for parent in parents[step_id]:
                bits |= ancestors[parent] | bit.get(parent, 0)
            ancestors[step_id] = bits
        found |= {(upper, lower) for upper, lower in pairs if bit.get(upper, 0) & ancestors[lower]}
    return found


def find_longest_id(
    index: Mapping[str, int], segments: Sequence[str], max_segments: int
) -> tuple[str, Sequence[str]] | None:
    """Return the longest id at the start of a path, and the remaining segments."""
    for end in range(min(len(segments), max_segments), 0, -1):
        step_id = ".".join(segments[:end])
        if step_id in index:
            return step_id, segments[end:]
    return None


def count_max_segments(ids: Iterable[str]) -> int:
    """Return the number of segments of the id with the most dots."""
    return max((step_id.count(".") + 1 for step_id in ids), default=1)
