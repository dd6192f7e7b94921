"""Large values, which records keep by reference."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from orchestrator.application.records.record_view import RecordView, make_record_view
from orchestrator.web.api.models import Json, Query
from orchestrator.web.api.route import ApiRoute, Call

PayloadId = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class PayloadQuery(Query):
    execution: str | None = Field(None, description="Redact the secrets of this execution in it as well.")


def get_payload(call: Call, payload: PayloadId, query: PayloadQuery) -> Json:
    """Load a large value by the id in its reference.

    A reference is `{"$payload": ID}`. Values under names of secrets are redacted.
    """
    client = call.instance.client
    value = client.payload(payload)
    redact = RecordView((), [value])
    if query.execution is not None:
        redact = make_record_view(client.record(query.execution))
    return redact(value)


ROUTES = [ApiRoute("GET", "/payloads/{payload}", get_payload)]
