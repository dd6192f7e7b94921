"""Collapses a large graph: finds groups of steps that can be drawn as one node.

The steps are numbers here. A level of the graph is a list of members (steps and groups) with the parents of
each. Every rule finds disjoint sets of members, and merging them gives the next level. No level has a cycle:
members of a set either are in one layer, or are everything between the first and the last of a chain or of a
band.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

MAX_PARTS = 100
"""How many members a group shows at once when it is expanded."""

MUCH = 0.9
"""Fans and chains are merged again if less than this part of the members was left after the last time."""

_DIGITS = re.compile("[0-9]+")


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Members that are drawn as one node, in an order in which no member comes before its parent."""

    id: str
    kind: str
    members: Sequence[Member]

    @property
    def leaves(self) -> Iterator[int]:
        """The steps in the group, at any depth."""
        todo: list[Member] = [self]
        while todo:
            member = todo.pop()
            if isinstance(member, Group):
                todo += member.members
            else:
                yield member


Member = int | Group


@dataclass(slots=True)
class _Level:
    """Members and, by position in this list, the parents of each, in order."""

    members: list[Member]
    parents: list[list[int]]

    def list_children(self) -> list[list[int]]:
        children: list[list[int]] = [[] for _ in self.parents]
        for place, parents in enumerate(self.parents):
            for parent in parents:
                children[parent].append(place)
        return children


Rule = Callable[[_Level, Sequence[str], int], list[list[int]]]


def collapse(ids: Sequence[str], parents: list[list[int]], max_nodes: int) -> list[Member]:
    """Merge steps to groups until at most `max_nodes` members are left."""
    level = _Level(list(range(len(ids))), parents)
    used: set[str] = set()
    for kind, rule in _select_rules(level, max_nodes):
        sets = rule(level, ids, max_nodes)
        if sets:
            merged = _merge(level, sets, kind, ids, used)
            level.members, level.parents = merged.members, merged.parents
    return level.members


def _select_rules(level: _Level, max_nodes: int) -> Iterator[tuple[str, Rule]]:
    """Yield the rules to apply one after the other. Fans and chains are merged again while that helps."""
    count = 2 * len(level.members)
    while len(level.members) > max_nodes and len(level.members) < MUCH * count:
        count = len(level.members)
        yield "fan", _find_fans
        if len(level.members) > max_nodes:
            yield "chain", _find_chains
    for kind, rule in (("alike", _find_alike), ("layer", _find_layers), ("band", _find_bands)):
        if len(level.members) > max_nodes:
            yield kind, rule


def divide(group: Group) -> list[Member]:
    """Return the members of a group; of a large one, groups of as many members each."""
    count = len(group.members)
    if count <= MAX_PARTS:
        return list(group.members)
    size = max(MAX_PARTS, ceil(count / MAX_PARTS))
    return [
        Group(f"{group.id}/{start // size}", "part", group.members[start : start + size])
        for start in range(0, count, size)
    ]


def _merge(level: _Level, sets: Iterable[list[int]], kind: str, ids: Sequence[str], used: set[str]) -> _Level:
    """Replace each set of members by one group, at the place of its first member."""
    members, targets = list(level.members), list(range(len(level.members)))
    for places in sets:
        first = min(places)
        group_id = _make_id(kind, ids[_first_step(level.members[places[0]])], used)
        members[first] = Group(group_id, kind, [level.members[place] for place in places])
        for place in places:
            targets[place] = first
    kept = [place for place, target in enumerate(targets) if place == target]
    position = {place: number for number, place in enumerate(kept)}
    moved = [position[target] for target in targets]
    parents: list[list[int]] = [[] for _ in kept]
    for at, old in zip(moved, level.parents, strict=True):
        parents[at] += [moved[parent] for parent in old]
    for at, some in enumerate(parents):
        if len(some) > 1 or some == [at]:
            parents[at] = sorted(set(some) - {at})
    return _Level([members[place] for place in kept], parents)


def _first_step(member: Member) -> int:
    while isinstance(member, Group):
        member = member.members[0]
    return member


def _make_id(kind: str, step_id: str, used: set[str]) -> str:
    """Name a group by its first step; a number makes it unique, because groups are nested."""
    name, number = f"{kind}:{step_id}", 1
    while name in used:
        number += 1
        name = f"{kind}{number}:{step_id}"
    used.add(name)
    return name


def _find_fans(level: _Level, ids: Sequence[str], max_nodes: int) -> list[list[int]]:
    fans: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for place, (parents, children) in enumerate(zip(level.parents, level.list_children(), strict=True)):
        fans.setdefault((tuple(parents), tuple(children)), []).append(place)
    return [places for places in fans.values() if len(places) > 1]


def _find_chains(level: _Level, ids: Sequence[str], max_nodes: int) -> list[list[int]]:
    following = {
        place: children[0]
        for place, children in enumerate(level.list_children())
        if len(children) == 1 and len(level.parents[children[0]]) == 1
    }
    runs = []
    for head in sorted(following.keys() - set(following.values())):
        run = [head]
        while run[-1] in following:
            run.append(following[run[-1]])
        runs.append(run)
    return runs


def _find_alike(level: _Level, ids: Sequence[str], max_nodes: int) -> list[list[int]]:
    alike: dict[tuple[int, str], list[int]] = {}
    for place, (member, layer) in enumerate(zip(level.members, find_layers(level.parents), strict=True)):
        stem = _DIGITS.sub("#", ids[_first_step(member)])
        alike.setdefault((layer, stem), []).append(place)
    return [places for places in alike.values() if len(places) > 1]


def _find_layers(level: _Level, ids: Sequence[str], max_nodes: int) -> list[list[int]]:
    """Find the largest layers, as many of them as must be merged."""
    excess = len(level.members) - max_nodes
    found = []
    for places in sorted(_list_layers(level), key=len, reverse=True):
        if excess > 0 and len(places) > 1:
            excess -= len(places) - 1
            found.append(places)
    return found


def _find_bands(level: _Level, ids: Sequence[str], max_nodes: int) -> list[list[int]]:
    layers = _list_layers(level)
    size = ceil(len(layers) / max_nodes)
    return [
        [place for layer in layers[start : start + size] for place in layer]
        for start in range(0, len(layers), size)
    ]


def _list_layers(level: _Level) -> list[list[int]]:
    layers: dict[int, list[int]] = {}
    for place, layer in enumerate(find_layers(level.parents)):
        layers.setdefault(layer, []).append(place)
    return [layers[layer] for layer in sorted(layers)]


def find_layers(parents: Sequence[Sequence[int]]) -> list[int]:
    """Return the length of the longest path to each node."""
    children: list[list[int]] = [[] for _ in parents]
    unmet = [0] * len(parents)
    for node, some in enumerate(parents):
        unmet[node] = len(some)
        for parent in some:
            children[parent].append(node)
    layers = [0] * len(parents)
    order = [node for node, count in enumerate(unmet) if not count]
    for node in order:  # the list grows during the loop
        below = layers[node] + 1
        for child in children[node]:
            if layers[child] < below:
                layers[child] = below
            unmet[child] -= 1
            if not unmet[child]:
                order.append(child)
    return layers
