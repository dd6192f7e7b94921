"""Why an event is rejected, as a word for counters. Its reply and its dead letter have the reason as text."""

from __future__ import annotations

from enum import StrEnum


class RejectionKind(StrEnum):
    UNREADABLE = "unreadable"
    """Its fields are no event."""
    INVALID = "invalid"
    """The document or the inputs of a start have problems."""
    UNKNOWN_WORKFLOW = "unknown_workflow"
    NO_ROUTE = "no_route"
    """No queue serves the tags of a step."""
    ID_TAKEN = "id_taken"
    """Another execution has the execution id, or another document the workflow_id."""
    UNCHECKED = "unchecked"
    """The document could not be checked within its limits."""
    UNDELIVERABLE = "undeliverable"
    """It was delivered several times and never handled to its end."""
    INTERNAL = "internal"
    OTHER = "other"
