"""Workflow documents in a body: a JSON object, or a text of YAML or JSON."""

from __future__ import annotations

from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import check_spec, load_spec
from orchestrator.web.api.models import JsonObject


def read_document(document: JsonObject | str) -> LoadedSpec:
    """Check a document; raises InvalidSpec with every problem, of a text with its line."""
    return load_spec(document) if isinstance(document, str) else check_spec(document)
