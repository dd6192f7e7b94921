"""Text to plain data, with the place of every node: YAML by rules of our own, JSON by the shorter way.

Differences from YAML's safe loader, all of them because a workflow is JSON and comes from strangers: keys are
their source text (`on:` is "on", `1:` is "1"), a key written twice is a problem, values that JSON cannot say
(dates, binary, sets, infinity) are problems, and size, depth and what aliases expand to have limits. One pass
over the parser's events does it all, without recursion.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import yaml

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.paths import Path, parse_path, render_path


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    max_bytes: int = 16 * 1024 * 1024
    max_nodes: int = 1_000_000
    max_depth: int = 50


DEFAULT_LIMITS = DocumentLimits()
MAX_PROBLEMS = 1_000
TOO_MANY_PROBLEMS = Problem(
    "", "too_big", f"there are more than {MAX_PROBLEMS} problems; these are the first"
)


@dataclass(frozen=True, slots=True)
class Document:
    data: Any
    places: Places
    source: str | None = None


class Place(NamedTuple):
    """Where a node begins, counted from 1, and the places of what is inside it and of a mapping's keys."""

    line: int
    column: int
    children: dict[str, Place] | list[Place] | None = None
    keys: dict[str, tuple[int, int]] | None = None


class Places:
    """Finds line and column of a path, or of the nearest part of it that exists."""

    def __init__(self, data: Any, root: Callable[[], Place | None]) -> None:
        self._data, self._build = data, root

    def find(self, path: str | Path, *, of_key: bool = False) -> tuple[int, int] | None:
        """The place of the value at `path`, or of the key before it."""
        place = self._root
        if place is None:
            return None
        found = place[:2]
        for segment in parse_path(path, self._data) if isinstance(path, str) else path:
            inside = place.children
            key_at = None
            if isinstance(inside, dict) and segment in inside:
                key_at = place.keys[str(segment)] if place.keys else None
                place = inside[str(segment)]
            elif isinstance(inside, list) and isinstance(segment, int) and segment < len(inside):
                place = inside[segment]
            else:
                break
            found = key_at if of_key and key_at else place[:2]
        return found

    @cached_property
    def _root(self) -> Place | None:
        return self._build()


def read_document(text: str, source: str | None = None, limits: DocumentLimits = DEFAULT_LIMITS) -> Document:
    """The data of a YAML or JSON text; InvalidSpec with all that is wrong with the text."""
    document, problems = scan_document(text, source, limits)
    if problems:
        raise InvalidSpec(problems, source)
    return document


def scan_document(
    text: str, source: str | None = None, limits: DocumentLimits = DEFAULT_LIMITS
) -> tuple[Document, list[Problem]]:
    """Like read_document, but problems that leave the rest readable are returned: others may add theirs."""
    text = text.removeprefix("\ufeff")
    try:
        too_big = len(text) > limits.max_bytes or len(text.encode()) > limits.max_bytes
    except UnicodeEncodeError:
        raise InvalidSpec(
            [Problem("", "not_json", "the text has characters that are not Unicode")], source
        ) from None
    if too_big:
        message = f"the text has more than {limits.max_bytes} bytes"
        raise InvalidSpec([Problem("", "too_big", message)], source)
    if text.lstrip().startswith("{"):
        try:
            return _read_json(text, source, limits)
        except ValueError:
            pass  # a YAML flow mapping, or broken: the YAML reader says where
    reader = _Reader(source, limits)
    data, place = reader.read(text)
    return Document(data, Places(data, lambda: place), source), reader.problems


def check_data(data: Any, path: Path = (), limits: DocumentLimits = DEFAULT_LIMITS) -> list[Problem]:
    """What keeps data that was built in Python, or read as JSON, from being plain JSON within the limits."""
    if not isinstance(data, _CONTAINERS):
        fault = _fault(data)
        return [Problem(render_path(path), "not_json", fault)] if fault else []
    problems: list[Problem] = []
    todo: list[tuple[Any, Path]] = [(data, path)]
    nodes = 1
    while todo:
        value, at = todo.pop()
        nodes += len(value)
        if nodes > limits.max_nodes:
            return [*problems, Problem(render_path(path), "too_big", _too_many(limits))]
        if len(at) - len(path) >= limits.max_depth:
            return [*problems, Problem(render_path(at), "too_deep", _too_deep(limits))]
        items: Iterable[tuple[Any, Any]] = enumerate(value)
        if isinstance(value, dict):
            items = value.items()
            strange = [key for key in value if type(key) is not str or not key.isascii()]
            if faults := [fault for fault in map(_key_fault, strange) if fault]:
                problems += [Problem(render_path(at), "not_json", fault) for fault in faults]
                items = [(key, item) for key, item in items if not _key_fault(key)]
        for key, item in items:
            if isinstance(item, _CONTAINERS):
                todo.append((item, (*at, key)))
            elif not (type(item) is str and item.isascii()) and (fault := _fault(item)):
                problems.append(Problem(render_path((*at, key)), "not_json", fault))
        if len(problems) > MAX_PROBLEMS:
            return [*problems[:MAX_PROBLEMS], TOO_MANY_PROBLEMS]
    return problems


_CONTAINERS = (dict, list)


def _key_fault(key: Any) -> str | None:
    return _fault(key) if isinstance(key, str) else f"the key {key!r} is not a text"


def merge_documents(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several documents as one, left to right: mappings merge key by key, lists and scalars replace."""
    merged: dict[str, Any] = {}
    for document in documents:
        merged = _merge(merged, document)
    return merged


def _merge(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Without recursion, and without a change to either: mappings built in Python may be deep, or shared."""
    merged = dict(left)
    todo = [(merged, right)]
    while todo:
        into, given = todo.pop()
        for key, value in given.items():
            if isinstance(value, dict) and isinstance(into.get(key), dict):
                into[key] = dict(into[key])
                todo.append((into[key], value))
            else:
                into[key] = value
    return merged


_MAX_INT_BITS = 1024  # as far as a float reaches; json.dumps() refuses far longer ones


def _fault(value: Any) -> str | None:
    """Why a scalar is not JSON."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return (
            None
            if value.isascii() or not _SURROGATE.search(value)
            else "a text that is not Unicode is not JSON"
        )
    if isinstance(value, int):
        return (
            None if value.bit_length() <= _MAX_INT_BITS else "a number this long is not JSON for most readers"
        )
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value} is not JSON"
    return f"a value of type {type(value).__name__} is not JSON"


_SURROGATE = re.compile("[\ud800-\udfff]")


def _too_many(limits: DocumentLimits) -> str:
    return f"the document has more than {limits.max_nodes} nodes, aliases expanded"


def _too_deep(limits: DocumentLimits) -> str:
    return f"the document is nested deeper than {limits.max_depth} levels"


# JSON -------------------------------------------------------------------------------------------------------


def _read_json(text: str, source: str | None, limits: DocumentLimits) -> tuple[Document, list[Problem]]:
    """ValueError when it is not JSON. Places are computed only when asked for: valid documents never do."""
    problems: list[Problem] = []

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) < len(pairs):
            written = Counter(key for key, _ in pairs)
            twice = (key for key, times in written.items() if times > 1)
            problems.extend(
                Problem(render_path((key,)), "duplicate_key", _written_twice(key)) for key in twice
            )
        return data

    try:
        data = json.loads(text, object_pairs_hook=mapping)
    except RecursionError:
        raise InvalidSpec([Problem("", "too_deep", _too_deep(limits))], source) from None
    problems += check_data(data, (), limits)  # NaN, 1e999 and lone surrogates too: json.loads() takes them
    if any(problem.code in ("too_big", "too_deep") for problem in problems):
        raise InvalidSpec(problems, source)

    def root() -> Place | None:
        try:
            return _Reader(source, limits).read(text)[1]
        except InvalidSpec:  # JSON that is not YAML, such as a pair of surrogates
            return None

    return Document(data, Places(data, root), source), problems


def _written_twice(key: str) -> str:
    return f"the key {key!r} is written twice"


# YAML -------------------------------------------------------------------------------------------------------

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


class _Node(NamedTuple):
    """A finished node. `size` counts what its aliases expand to; `text` is the source of a scalar."""

    value: Any
    place: Place
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


class _Reader:
    """Takes the parser's events one by one and keeps the collections that are still open on a stack."""

    def __init__(self, source: str | None, limits: DocumentLimits) -> None:
        self.problems: list[Problem] = []
        self._source, self._limits = source, limits
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Node | None] = {}  # None: not finished yet
        self._count = 0
        self._root: _Node | None = None

    def read(self, text: str) -> tuple[Any, Place | None]:
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
            node = _Node(event.value, Place(*at), 1, 0, event.value)
        else:
            node = _Node(self._value(event, at), Place(*at), 1, 0, event.value)
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
                fault = _fault(value)
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
            self._stop("too_deep", _too_deep(self._limits), at)
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
        place = Place(*done.at, done.children, done.keys)
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
            self._stop("too_deep", _too_deep(self._limits), at)
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
            self._problem("duplicate_key", _written_twice(key), at)
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
            self._stop("too_big", _too_many(self._limits), at)

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
