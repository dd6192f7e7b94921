"""Text to plain data, with the place of every node: YAML by rules of our own, JSON by the shorter way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.spec.yaml_reader import SourcePosition, YamlReader
from orchestrator.application.values.document_limits import (
    DEFAULT_LIMITS,
    MAX_PROBLEMS,
    TOO_MANY_PROBLEMS,
    DocumentLimits,
    duplicate_key_message,
    not_json_reason,
    too_deep_message,
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
    def _root(self) -> SourcePosition | None:
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
    reader = YamlReader(source, limits)
    data, place = reader.read(text)
    return Document(data, SourceMap(data, lambda: place), source), reader.problems


def check_data(data: Any, path: Path = (), limits: DocumentLimits = DEFAULT_LIMITS) -> list[Problem]:
    """What keeps data that was built in Python, or read as JSON, from being plain JSON within the limits."""
    if not isinstance(data, _CONTAINERS):
        fault = not_json_reason(data)
        return [Problem(render_path(path), "not_json", fault)] if fault else []
    problems: list[Problem] = []
    todo: list[tuple[Any, Path]] = [(data, path)]
    nodes = 1
    while todo:
        value, at = todo.pop()
        nodes += len(value)
        if nodes > limits.max_nodes:
            return [*problems, Problem(render_path(path), "too_big", too_many_nodes_message(limits))]
        if len(at) - len(path) >= limits.max_depth:
            return [*problems, Problem(render_path(at), "too_deep", too_deep_message(limits))]
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
            elif not (type(item) is str and item.isascii()) and (fault := not_json_reason(item)):
                problems.append(Problem(render_path((*at, key)), "not_json", fault))
        if len(problems) > MAX_PROBLEMS:
            return [*problems[:MAX_PROBLEMS], TOO_MANY_PROBLEMS]
    return problems


_CONTAINERS = (dict, list)


def _key_fault(key: Any) -> str | None:
    return not_json_reason(key) if isinstance(key, str) else f"the key {key!r} is not a text"


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


def _read_json(text: str, source: str | None, limits: DocumentLimits) -> tuple[Document, list[Problem]]:
    """ValueError when it is not JSON. Places are computed only when asked for: valid documents never do."""
    problems: list[Problem] = []

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) < len(pairs):
            written = Counter(key for key, _ in pairs)
            twice = (key for key, times in written.items() if times > 1)
            problems.extend(
                Problem(render_path((key,)), "duplicate_key", duplicate_key_message(key)) for key in twice
            )
        return data

    try:
        data = json.loads(text, object_pairs_hook=mapping)
    except RecursionError:
        raise InvalidSpec([Problem("", "too_deep", too_deep_message(limits))], source) from None
    problems += check_data(data, (), limits)  # NaN, 1e999 and lone surrogates too: json.loads() takes them
    if any(problem.code in ("too_big", "too_deep") for problem in problems):
        raise InvalidSpec(problems, source)

    def root() -> SourcePosition | None:
        try:
            return YamlReader(source, limits).read(text)[1]
        except InvalidSpec:  # JSON that is not YAML, such as a pair of surrogates
            return None

    return Document(data, SourceMap(data, root), source), problems


def scan_documents(
    texts: Sequence[tuple[str, str]], limits: DocumentLimits = DEFAULT_LIMITS
) -> tuple[dict[str, Any], list[Document], list[Problem]]:
    """The merged data of texts and their sources, the documents, and the problems that leave them readable.

    If one of them is unreadable, the InvalidSpec has the problems of all. The limits hold for each text, and
    for what they come to together.
    """
    documents: list[Document] = []
    problems: list[Problem] = []
    size = 0
    for text, source in texts:
        size += len(text.encode(errors="surrogatepass"))
        try:
            if size > limits.max_bytes:
                message = f"this text and those before it have more than {limits.max_bytes} bytes"
                raise InvalidSpec([Problem("", "too_big", message)])
            document, found = scan_document(text, source, limits)
        except InvalidSpec as error:
            problems += [replace(problem, source=source) for problem in error.problems]
            continue
        problems += [_placed(problem, document) for problem in found]
        if isinstance(document.data, dict):
            documents.append(document)
        else:
            message = "a document that is merged with others must be a mapping"
            problems.append(_placed(Problem("", "bad_type", message), document))
    if len(problems) > MAX_PROBLEMS:
        raise InvalidSpec([*problems[:MAX_PROBLEMS], TOO_MANY_PROBLEMS])
    if len(documents) < len(texts):
        raise InvalidSpec(problems)
    data = merge_documents([document.data for document in documents])
    if too_big := [problem for problem in check_data(data, (), limits) if problem.code == "too_big"]:
        raise InvalidSpec([*problems, *too_big])
    return data, documents, problems


def find_owner(path: Path, documents: Sequence[Document]) -> Document:
    """Of documents that were merged, the one that has what is at `path`, or the nearest part that exists.

    What a later document replaced is not there; a mapping that several wrote is where the first began it.
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


def _placed(problem: Problem, document: Document) -> Problem:
    """With the source, and with the place if the reader of the text did not know it."""
    line, column = problem.line, problem.column
    if line is None:
        line, column = document.source_map.find(problem.path) or (None, None)
    return replace(problem, line=line, column=column, source=document.source)
