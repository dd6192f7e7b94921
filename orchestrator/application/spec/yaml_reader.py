"""Reads YAML into plain data, and keeps the line and column of every node.

It differs from YAML's safe loader, because a workflow is JSON and may come from an untrusted source. Keys are
their source text (`on:` is "on", `1:` is "1"). A duplicate key is a problem, and so are values that JSON does
not have (dates, binary, sets, infinity). Size, depth and the expansion of aliases have limits. It takes one
pass over the parser's events, without recursion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import yaml

from orchestrator.application.errors import DocumentTooBig, InvalidSpec, Problem
from orchestrator.application.values.document_limits import (
    MAX_PROBLEMS,
    TOO_BIG_HINT,
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
_KEY_RULE = "a key must be a string, not a collection"
_BRACES_HINT = 'write a text that begins with braces in quotes: "{{ input.name }}"'
_STRING_TAGS = frozenset({"!", *(_TAG + name for name in ("str", "value", "merge"))})
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
    """Where a node begins, counted from 1, and the positions of its children and of a mapping's keys."""

    line: int
    column: int
    children: dict[str, SourcePosition] | list[SourcePosition] | None = None
    keys: dict[str, tuple[int, int]] | None = None


class _Node(NamedTuple):
    """A finished node. `size` includes the expansion of its aliases; `text` is the source of a scalar."""

    value: Any
    position: SourcePosition
    size: int
    height: int
    text: str | None = None


@dataclass(slots=True)
class _OpenCollection:
    """A collection that is not finished; in a mapping, `key` is the one whose value comes next."""

    value: Any
    children: Any
    at: tuple[int, int]
    anchor: str | None
    count_before: int
    height: int = 1
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    key: str | None = None
    is_merging: bool = False
    merged: list[_Node] = field(default_factory=list)

    def segment(self) -> str | int | None:
        """Return the key or index of the next value."""
        return len(self.value) if isinstance(self.value, list) else self.key


class YamlReader:
    """Handles the parser's events one by one, with a stack of the collections that are not finished."""

    def __init__(self, source: str | None, limits: DocumentLimits) -> None:
        self.problems: list[Problem] = []
        self._source, self._limits = source, limits
        self._stack: list[_OpenCollection] = []
        self._anchors: dict[str, _Node | None] = {}  # None: not finished
        self._count = 0
        self._root: _Node | None = None

    def read(self, text: str) -> tuple[Any, SourcePosition | None]:
        """Return the data and its positions. Raises InvalidSpec if it is unreadable; see also `problems`."""
        try:
            for event in yaml.parse(text, Loader=_LOADER):
                self._handle(event)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            message = ": ".join(part for part in (error.context, error.problem) if part)
            self._stop("bad_yaml", message, _at(mark) if mark else None)
        except yaml.YAMLError:  # an error of the character reader, which has no line
            character = yaml.reader.Reader.NON_PRINTABLE.search(text)
            before = text[: character.start()] if character else ""
            at = (before.count("\n") + 1, len(before) - before.rfind("\n")) if character else None
            self._stop("bad_yaml", "the text has a character that YAML does not allow", at)
        return (self._root.value, self._root.position) if self._root else (None, None)

    def _handle(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._add_scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            self._open(event, {}, {})
        elif isinstance(event, yaml.SequenceStartEvent):
            self._open(event, [], [])
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._add_alias(event)
        elif isinstance(event, yaml.DocumentStartEvent) and self._root is not None:
            self._stop(
                "bad_yaml", "a second document begins here; only one is allowed", _at(event.start_mark)
            )

    def _add_scalar(self, event: yaml.ScalarEvent) -> None:
        at = _at(event.start_mark)
        self._count_nodes(1)
        if self._expects_key():
            is_merge = event.value == "<<" and event.tag is None and event.implicit[0]
            self._set_key(event.value, at, is_merge)
            node = _Node(event.value, SourcePosition(*at), 1, 0, event.value)
        else:
            node = _Node(self._parse_value(event, at), SourcePosition(*at), 1, 0, event.value)
            self._attach(node)
        if event.anchor is not None:
            self._anchors[event.anchor] = node

    def _parse_value(self, event: yaml.ScalarEvent, at: tuple[int, int]) -> Any:
        text: str = event.value
        if event.tag is not None and event.tag != "!":
            tag = event.tag
        elif event.implicit[0]:
            tag = next((tag for tag, form in _RESOLVERS.get(text[:1], ()) if form.match(text)), "!")
        else:
            return text
        if tag in _STRING_TAGS:
            return text
        if construct := _CONSTRUCT.get(tag):
            try:
                value = construct(yaml.ScalarNode(tag, text))
                problem = not_json_reason(value)
            except (ValueError, LookupError, OverflowError):
                value, problem = None, f"{_shorten(text)!r} cannot be read as {tag.removeprefix(_TAG)}"
        elif tag == _TAG + "timestamp":
            value, problem = None, f'a date is not JSON; write it in quotes: "{text}"'
        else:
            value, problem = None, f"a value of type {tag.removeprefix(_TAG)} is not JSON"
        if problem:
            self._add_problem("not_json", problem, at)
            return None
        return value

    def _open(self, event: yaml.CollectionStartEvent, value: Any, children: Any) -> None:
        at = _at(event.start_mark)
        if self._expects_key():
            is_reference = isinstance(value, dict) and self._stack[-1].at == (at[0], at[1] - 1)
            self._stop("not_json", _KEY_RULE, at, _BRACES_HINT if is_reference else None)
        if len(self._stack) >= self._limits.max_depth:
            self._stop("too_deep", too_deep_message(self._limits), at)
        if event.tag not in _COLLECTIONS[type(value)]:
            message = f"a value of type {(event.tag or '').removeprefix(_TAG)} is not JSON"
            self._add_problem("not_json", message, at)
        self._stack.append(_OpenCollection(value, children, at, event.anchor, self._count))
        self._count_nodes(1)
        if event.anchor is not None:
            self._anchors[event.anchor] = None

    def _close(self) -> None:
        done = self._stack.pop()
        if done.merged:
            # Merged keys come first, later ones replace earlier ones, and the mapping's own keys replace all.
            own_value, own_children, own_keys = done.value, done.children, done.keys
            done.value, done.children, done.keys = {}, {}, {}
            for node in done.merged:
                done.value.update(node.value)
                done.children.update(node.position.children or {})
                done.keys.update(node.position.keys or {})
            done.value.update(own_value)
            done.children.update(own_children)
            done.keys.update(own_keys)
        position = SourcePosition(*done.at, done.children, done.keys)
        node = _Node(done.value, position, self._count - done.count_before, done.height)
        if done.anchor is not None:
            self._anchors[done.anchor] = node
        self._attach(node)

    def _add_alias(self, event: yaml.AliasEvent) -> None:
        at = _at(event.start_mark)
        name = event.anchor
        if name not in self._anchors:
            self._stop("bad_yaml", f"the alias {name!r} has no anchor before it", at)
        node = self._anchors[name]
        if node is None:
            self._stop("too_deep", f"the alias {name!r} is inside its own anchor", at)
        if len(self._stack) + node.height > self._limits.max_depth:
            self._stop("too_deep", too_deep_message(self._limits), at)
        self._count_nodes(node.size, at)
        if not self._expects_key():
            self._attach(node._replace(position=node.position._replace(line=at[0], column=at[1])))
        elif node.text is None:
            self._stop("not_json", _KEY_RULE, at)
        else:
            self._set_key(node.text, at, is_merge=False)

    def _set_key(self, key: str, at: tuple[int, int], is_merge: bool) -> None:
        mapping = self._stack[-1]
        mapping.key, mapping.is_merging = key, is_merge
        if key in mapping.keys:
            self._add_problem("duplicate_key", duplicate_key_message(key), at)
        mapping.keys[key] = at

    def _attach(self, node: _Node) -> None:
        if not self._stack:
            self._root = node
            return
        parent = self._stack[-1]
        parent.height = max(parent.height, node.height + 1)
        if isinstance(parent.value, list):
            parent.value.append(node.value)
            parent.children.append(node.position)
            return
        if parent.is_merging:
            self._merge(parent, node)
        else:
            parent.value[parent.key] = node.value
            parent.children[parent.key] = node.position
        parent.key = None

    def _merge(self, parent: _OpenCollection, node: _Node) -> None:
        sources = [node]
        if isinstance(node.value, list) and isinstance(node.position.children, list):
            items = zip(node.value, node.position.children, strict=True)
            sources = [_Node(value, position, 0, 0) for value, position in items]
        if not all(isinstance(source.value, dict) for source in sources):
            self._add_problem("bad_yaml", "<< needs a mapping or a list of mappings", node.position[:2])
            return
        parent.merged.extend(reversed(sources))

    def _expects_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None

    def _count_nodes(self, nodes: int, at: tuple[int, int] | None = None) -> None:
        self._count += nodes
        if self._count > self._limits.max_nodes:
            self._add_problem("too_big", too_many_nodes_message(self._limits), at, TOO_BIG_HINT)
            raise DocumentTooBig(self.problems, self._source)

    def _add_problem(
        self, code: str, message: str, at: tuple[int, int] | None, hint: str | None = None
    ) -> None:
        segments = (collection.segment() for collection in self._stack)
        path = render_path(tuple(segment for segment in segments if segment is not None))
        line, column = at or (None, None)
        if len(self.problems) == MAX_PROBLEMS:
            raise InvalidSpec([*self.problems, TOO_MANY_PROBLEMS], self._source)
        self.problems.append(Problem(path, code, message, hint, line, column))

    def _stop(self, code: str, message: str, at: tuple[int, int] | None, hint: str | None = None) -> NoReturn:
        self._add_problem(code, message, at, hint)
        raise InvalidSpec(self.problems, self._source)


def _at(mark: Any) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."
