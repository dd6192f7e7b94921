"""Reads YAML or JSON into plain data, and keeps the line and column of every node. Merges documents.

JSON takes a shorter path than YAML. `yaml_reader.py` has the rules for YAML.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

from orchestrator.application.errors import DocumentTooBig, InvalidSpec, Problem
from orchestrator.application.spec.yaml_reader import SourcePosition, YamlReader
from orchestrator.application.values.document_limits import (
    DEFAULT_LIMITS,
    MAX_PROBLEMS,
    TOO_BIG_HINT,
    TOO_MANY_PROBLEMS,
    DocumentLimits,
    duplicate_key_message,
    not_json_reason,
    too_deep_message,
    too_many_bytes_message,
    too_many_nodes_message,
)
from orchestrator.application.values.paths import Path, parse_path, render_path


@dataclass(frozen=True, slots=True)
class Document:
    data: Any
    source_map: SourceMap
    source: str | None = None


class SourceMap:
    """Finds line and column of a path, or of the nearest part of it that exists."""

    def __init__(self, data: Any, root: Callable[[], SourcePosition | None]) -> None:
        self._data, self._build = data, root

    def find(self, path: str | Path, *, of_key: bool = False) -> tuple[int, int] | None:
        """Return line and column of the value at `path`, or of its key."""
        position = self._root
        if position is None:
            return None
        found = position[:2]
        for segment in parse_path(path, self._data) if isinstance(path, str) else path:
            children = position.children
            key_at = None
            if isinstance(children, dict) and segment in children:
                key_at = position.keys[str(segment)] if position.keys else None
                position = children[str(segment)]
            elif isinstance(children, list) and isinstance(segment, int) and segment < len(children):
                position = children[segment]
            else:
                break
            found = key_at if of_key and key_at else position[:2]
        return found

    @cached_property
    def _root(self) -> SourcePosition | None:
        return self._build()


def read_document(text: str, source: str | None = None, limits: DocumentLimits = DEFAULT_LIMITS) -> Document:
    """Read a YAML or JSON text; raise InvalidSpec with all its problems."""
    document, problems = scan_document(text, source, limits)
    if problems:
        raise InvalidSpec(problems, source)
    return document


def scan_document(
    text: str, source: str | None = None, limits: DocumentLimits = DEFAULT_LIMITS
) -> tuple[Document, list[Problem]]:
    """Like read_document, but return the problems that leave the rest readable, so that it can be checked."""
    text = text.removeprefix("\ufeff")
    try:
        too_big = len(text) > limits.max_bytes or len(text.encode()) > limits.max_bytes
    except UnicodeEncodeError:
        raise InvalidSpec(
            [Problem("", "not_json", "the text has characters that are not valid Unicode")], source
        ) from None
    if too_big:
        problem = Problem("", "too_big", too_many_bytes_message(limits), TOO_BIG_HINT)
        raise DocumentTooBig([problem], source)
    if text.lstrip().startswith("{"):
        try:
            return _read_json(text, source, limits)
        except ValueError:
            pass  # a YAML flow mapping, or a broken text: the YAML reader reports where
    reader = YamlReader(source, limits)
    data, position = reader.read(text)
    return Document(data, SourceMap(data, lambda: position), source), reader.problems


def check_data(data: Any, path: Path = (), limits: DocumentLimits = DEFAULT_LIMITS) -> list[Problem]:
    """Return the reasons why data from Python or from JSON is not plain JSON within the limits."""
    if not isinstance(data, _CONTAINERS):
        reason = not_json_reason(data)
        return [Problem(render_path(path), "not_json", reason)] if reason else []
    problems: list[Problem] = []
    todo: list[tuple[Any, Path]] = [(data, path)]
    nodes = 1
    while todo:
        value, at = todo.pop()
        nodes += len(value)
        if nodes > limits.max_nodes:
            message = too_many_nodes_message(limits)
            return [*problems, Problem(render_path(path), "too_big", message, TOO_BIG_HINT)]
        if len(at) - len(path) >= limits.max_depth:
            return [*problems, Problem(render_path(at), "too_deep", too_deep_message(limits))]
        items: Iterable[tuple[Any, Any]] = enumerate(value)
        if isinstance(value, dict):
            items = value.items()
            unusual = [key for key in value if type(key) is not str or not key.isascii()]
            if reasons := [reason for reason in map(_bad_key_reason, unusual) if reason]:
                problems += [Problem(render_path(at), "not_json", reason) for reason in reasons]
                items = [(key, item) for key, item in items if not _bad_key_reason(key)]
        for key, item in items:
            if isinstance(item, _CONTAINERS):
                todo.append((item, (*at, key)))
            elif not (type(item) is str and item.isascii()) and (reason := not_json_reason(item)):
                problems.append(Problem(render_path((*at, key)), "not_json", reason))
        if len(problems) > MAX_PROBLEMS:
            return [*problems[:MAX_PROBLEMS], TOO_MANY_PROBLEMS]
    return problems


_CONTAINERS = (dict, list)


def _bad_key_reason(key: Any) -> str | None:
    return not_json_reason(key) if isinstance(key, str) else f"the key {key!r} is not a string"


def merge_documents(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge documents from left to right: mappings merge key by key, lists and scalars replace."""
    merged: dict[str, Any] = {}
    for document in documents:
        merged = _merge(merged, document)
    return merged


def _merge(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Merge without recursion or changes to either side: mappings from Python may be deep or shared."""
    merged = dict(left)
    todo = [(merged, right)]
    while todo:
        target, source = todo.pop()
        for key, value in source.items():
            if isinstance(value, dict) and isinstance(target.get(key), dict):
                target[key] = dict(target[key])
                todo.append((target[key], value))
            else:
                target[key] = value
    return merged


def _read_json(text: str, source: str | None, limits: DocumentLimits) -> tuple[Document, list[Problem]]:
    """Read JSON; ValueError if it is none. Positions are computed on demand: valid documents need none."""
    problems: list[Problem] = []

    def build_mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated = (key for key, count in counts.items() if count > 1)
            problems.extend(
                Problem(render_path((key,)), "duplicate_key", duplicate_key_message(key)) for key in repeated
            )
        return data

    try:
        data = json.loads(text, object_pairs_hook=build_mapping)
    except RecursionError:
        raise InvalidSpec([Problem("", "too_deep", too_deep_message(limits))], source) from None
    problems += check_data(
        data, (), limits
    )  # also finds NaN, 1e999 and lone surrogates, which json.loads() accepts
    if any(problem.hint == TOO_BIG_HINT for problem in problems):
        raise DocumentTooBig(problems, source)
    if any(problem.code in ("too_big", "too_deep") for problem in problems):
        raise InvalidSpec(problems, source)

    def find_positions() -> SourcePosition | None:
        enough = replace(limits, max_nodes=limits.max_bytes)  # in YAML the keys count too
        try:
            return YamlReader(source, enough).read(text)[1]
        except InvalidSpec:  # JSON that is not YAML, such as a pair of surrogates
            return None

    return Document(data, SourceMap(data, find_positions), source), problems


def scan_documents(
    texts: Sequence[tuple[str, str]], limits: DocumentLimits = DEFAULT_LIMITS
) -> tuple[dict[str, Any], list[Document], list[Problem]]:
    """Read and merge several (text, source) pairs: the merged data, the documents, and minor problems.

    If a text is unreadable, InvalidSpec has the problems of all texts. The limits apply to each text, and to
    all of them together.
    """
    documents: list[Document] = []
    problems: list[Problem] = []
    size = 0
    for text, source in texts:
        size += len(text.encode(errors="surrogatepass"))
        try:
            if size > limits.max_bytes:
                message = f"this text and those before it have more than {limits.max_bytes:,} bytes"
                raise InvalidSpec([Problem("", "too_big", message, TOO_BIG_HINT)])
            document, minor = scan_document(text, source, limits)
        except InvalidSpec as error:
            problems += [replace(problem, source=source) for problem in error.problems]
            continue
        problems += [_with_position(problem, document) for problem in minor]
        if isinstance(document.data, dict):
            documents.append(document)
        else:
            message = "a document that is merged with others must be a mapping"
            problems.append(_with_position(Problem("", "bad_type", message), document))
    if len(problems) > MAX_PROBLEMS:
        raise InvalidSpec([*problems[:MAX_PROBLEMS], TOO_MANY_PROBLEMS])
    if len(documents) < len(texts):
        raise InvalidSpec(problems)
    data = merge_documents([document.data for document in documents])
    if too_big := [problem for problem in check_data(data, (), limits) if problem.code == "too_big"]:
        raise InvalidSpec([*problems, *too_big])
    return data, documents, problems


def find_owner(path: Path, documents: Sequence[Document]) -> Document:
    """Return the one of several merged documents that has the value at `path`, or the nearest part of it.

    A value that a later document replaced does not count. A mapping from several documents belongs to the
    first of them.
    """
    owners = [(document, document.data) for document in documents]
    for segment in path:
        mappings = [(owner, data) for owner, data in owners if isinstance(data, dict)]
        inside = [(owner, data[segment]) for owner, data in mappings if segment in data]
        if not inside:
            break
        merged = list(takewhile(lambda entry: isinstance(entry[1], dict), reversed(inside)))
        owners = merged[::-1] or inside[-1:]
    return owners[0][0]


def _with_position(problem: Problem, document: Document) -> Problem:
    """Add the source to a problem, and line and column unless it has them."""
    line, column = problem.line, problem.column
    if line is None:
        line, column = document.source_map.find(problem.path) or (None, None)
    return replace(problem, line=line, column=column, source=document.source)
