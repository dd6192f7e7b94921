"""Several texts as one document, and which of them has what is at a path of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.spec.document import Document, check_data, merge_documents, scan_document
from orchestrator.application.values.document_limits import (
    DEFAULT_LIMITS,
    MAX_PROBLEMS,
    TOO_MANY_PROBLEMS,
    DocumentLimits,
)
from orchestrator.application.values.paths import Path


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


def owner_of(path: Path, documents: Sequence[Document]) -> Document:
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
        line, column = document.places.find(problem.path) or (None, None)
    return replace(problem, line=line, column=column, source=document.source)
