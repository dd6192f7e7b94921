"""YAML to plain data, with the place of every node, by rules of our own.

Differences from YAML's safe loader, all of them because a workflow is JSON and comes from strangers: keys are
their source text (`on:` is "on", `1:` is "1"), a key written twice is a problem, values that JSON cannot say
(dates, binary, sets, infinity) are problems, and size, depth and what aliases expand to have limits. One pass
over the parser's events does it all, without recursion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import yaml

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.values.document_limits import (
    MAX_PROBLEMS,
    TOO_MANY_PROBLEMS,
    DocumentLimits,
    duplicate_key_message,
    not_json_reason,
    too_deep_message,
    too_many_nodes_message,
)
from orchestrator.application.values.paths import render_path

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVERS = yaml.SafeLoader.yaml_implicit_resolvers
_SAFE = yaml.constructor.SafeConstructor()
_TAG = "tag:yaml.org,2002:"
_TEXTS = frozenset({"!", *(_TAG + name for name in ("str", "value", "merge"))})
_COLLECTIONS: dict[type, tuple[str | None, ...]] = {
    dict: (None, "!", _TAG + "map"),
    list: (None, "!", _TAG + "seq"),
}
_CONSTRUCT: dict[str, Callable[[yaml.ScalarNode], Any]] = {
    _TAG + "int": _SAFE.construct_yaml_int,
    _TAG + "float": _SAFE.construct_yaml_float,
    _TAG + "bool": _SAFE.construct_yaml_bool,
    _TAG + "null": _SAFE.construct_yaml_null,
}


class SourcePosition(NamedTuple):
    """Where a node begins, counted from 1, and the places of what is inside it and of a mapping's keys."""

    line: int
    column: int
    children: dict[str, SourcePosition] | list[SourcePosition] | None = None
    keys: dict[str, tuple[int, int]] | None = None


class _Node(NamedTuple):
    """A finished node. `size` counts what its aliases expand to; `text` is the source of a scalar."""

    value: Any
    place: SourcePosition
    size: int
    height: int
    text: str | None = None


@dataclass(slots=True)
class _Open:
    """A collection whose end has not come; in a mapping, `key` waits for its value."""

    value: Any
    children: Any
    at: tuple[int, int]
    anchor: str | None
    counted: int
    height: int = 1
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    key: str | None = None
    merging: bool = False
    merged: list[_Node] = field(default_factory=list)

    def segment(self) -> str | int | None:
        return len(self.value) if isinstance(self.value, list) else self.key


class YamlReader:
    """Takes the parser's events one by one and keeps the collections that are still open on a stack."""

    def __init__(self, source: str | None, limits: DocumentLimits) -> None:
        self.problems: list[Problem] = []
        self._source, self._limits = source, limits
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Node | None] = {}  # None: not finished yet
        self._count = 0
        self._root: _Node | None = None

    def read(self, text: str) -> tuple[Any, SourcePosition | None]:
        try:
            for event in yaml.parse(text, Loader=_LOADER):
                self._take(event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            message = ": ".join(part for part in (error.context, error.problem) if part)
            self._stop("bad_yaml", message, _at(mark) if mark else None)
        except yaml.YAMLError:  # the reader's own, which knows no line
            strange = yaml.reader.Reader.NON_PRINTABLE.search(text)
            before = text[: strange.start()] if strange else ""
            place = (before.count("\n") + 1, len(before) - before.rfind("\n")) if strange else None
            self._stop("bad_yaml", "the text has a character that YAML does not allow", place)
        return (self._root.value, self._root.place) if self._root else (None, None)

    def _take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            self._open(event, {}, {})
        elif isinstance(event, yaml.SequenceStartEvent):
            self._open(event, [], [])
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.DocumentStartEvent) and self._root is not None:
            self._stop(
                "bad_yaml", "a second document begins here; only one is allowed", _at(event.start_mark)
            )

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        at = _at(event.start_mark)
        self._add(1)
        if self._expects_key():
            is_merge = event.value == "<<" and event.tag is None and event.implicit[0]
            self._key(event.value, at, is_merge)
            node = _Node(event.value, SourcePosition(*at), 1, 0, event.value)
        else:
            node = _Node(self._value(event, at), SourcePosition(*at), 1, 0, event.value)
            self._attach(node)
        if event.anchor is not None:
            self._anchors[event.anchor] = node

    def _value(self, event: yaml.ScalarEvent, at: tuple[int, int]) -> Any:
        text: str = event.value
        if event.tag is not None and event.tag != "!":
            tag = event.tag
        elif event.implicit[0]:
            tag = next((tag for tag, form in _RESOLVERS.get(text[:1], ()) if form.match(text)), "!")
        else:
            return text
        if tag in _TEXTS:
            return text
        if construct := _CONSTRUCT.get(tag):
            try:
                value = construct(yaml.ScalarNode(tag, text))
                fault = not_json_reason(value)
            except (ValueError, LookupError, OverflowError):
                value, fault = None, f"{_short(text)!r} cannot be read as {tag.removeprefix(_TAG)}"
        elif tag == _TAG + "timestamp":
            value, fault = None, f'a date is not JSON; write it in quotes: "{text}"'
        else:
            value, fault = None, f"a value of type {tag.removeprefix(_TAG)} is not JSON"
        if fault:
            self._problem("not_json", fault, at)
            return None
        return value

    def _open(self, event: yaml.CollectionStartEvent, value: Any, children: Any) -> None:
        at = _at(event.start_mark)
        if self._expects_key():
            self._stop("not_json", "a key must be a text, not a collection", at)
        if len(self._stack) >= self._limits.max_depth:
            self._stop("too_deep", too_deep_message(self._limits), at)
        if event.tag not in _COLLECTIONS[type(value)]:
            self._problem(
                "not_json", f"a value of type {(event.tag or '').removeprefix(_TAG)} is not JSON", at
            )
        self._stack.append(_Open(value, children, at, event.anchor, self._count))
        self._add(1)
        if event.anchor is not None:
            self._anchors[event.anchor] = None

    def _close(self) -> None:
        done = self._stack.pop()
        if done.merged:
            # What is merged in comes first, the later over the earlier, and the mapping's own keys over all.
            own_value, own_children, own_keys = done.value, done.children, done.keys
            done.value, done.children, done.keys = {}, {}, {}
            for node in done.merged:
                done.value.update(node.value)
                done.children.update(node.place.children or {})
                done.keys.update(node.place.keys or {})
            done.value.update(own_value)
            done.children.update(own_children)
            done.keys.update(own_keys)
        place = SourcePosition(*done.at, done.children, done.keys)
        node = _Node(done.value, place, self._count - done.counted, done.height)
        if done.anchor is not None:
            self._anchors[done.anchor] = node
        self._attach(node)

    def _alias(self, event: yaml.AliasEvent) -> None:
        at = _at(event.start_mark)
        name = event.anchor
        if name not in self._anchors:
            self._stop("bad_yaml", f"the alias {name!r} has no anchor before it", at)
        node = self._anchors[name]
        if node is None:
            self._stop("too_deep", f"the alias {name!r} is inside what it stands for", at)
        if len(self._stack) + node.height > self._limits.max_depth:
            self._stop("too_deep", too_deep_message(self._limits), at)
        self._add(node.size, at)
        if not self._expects_key():
            self._attach(node._replace(place=node.place._replace(line=at[0], column=at[1])))
        elif node.text is None:
            self._stop("not_json", "a key must be a text, not a collection", at)
        else:
            self._key(node.text, at, is_merge=False)

    def _key(self, key: str, at: tuple[int, int], is_merge: bool) -> None:
        mapping = self._stack[-1]
        mapping.key, mapping.merging = key, is_merge
        if key in mapping.keys:
            self._problem("duplicate_key", duplicate_key_message(key), at)
        mapping.keys[key] = at

    def _attach(self, node: _Node) -> None:
        if not self._stack:
            self._root = node
            return
        parent = self._stack[-1]
        parent.height = max(parent.height, node.height + 1)
        if isinstance(parent.value, list):
            parent.value.append(node.value)
            parent.children.append(node.place)
            return
        if parent.merging:
            self._merge(parent, node)
        else:
            parent.value[parent.key] = node.value
            parent.children[parent.key] = node.place
        parent.key = None

    def _merge(self, parent: _Open, node: _Node) -> None:
        sources = [node]
        if isinstance(node.value, list) and isinstance(node.place.children, list):
            inside = zip(node.value, node.place.children, strict=True)
            sources = [_Node(value, place, 0, 0) for value, place in inside]
        if not all(isinstance(source.value, dict) for source in sources):
            self._problem("bad_yaml", "<< needs a mapping or a list of mappings", node.place[:2])
            return
        parent.merged.extend(reversed(sources))

    def _expects_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None

    def _add(self, nodes: int, at: tuple[int, int] | None = None) -> None:
        self._count += nodes
        if self._count > self._limits.max_nodes:
            self._stop("too_big", too_many_nodes_message(self._limits), at)

    def _problem(self, code: str, message: str, at: tuple[int, int] | None) -> None:
        segments = (open_.segment() for open_ in self._stack)
        path = render_path(tuple(segment for segment in segments if segment is not None))
        line, column = at or (None, None)
        if len(self.problems) == MAX_PROBLEMS:
            raise InvalidSpec([*self.problems, TOO_MANY_PROBLEMS], self._source)
        self.problems.append(Problem(path, code, message, None, line, column))

    def _stop(self, code: str, message: str, at: tuple[int, int] | None) -> NoReturn:
        self._problem(code, message, at)
        raise InvalidSpec(self.problems, self._source)


def _at(mark: Any) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."
