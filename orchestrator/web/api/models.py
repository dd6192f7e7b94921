"""The base classes of the models: what a route takes is checked strictly, what it returns is documented.

Unknown parameters and keys are rejected. What a route returns has no field that the document does not name;
clients must accept new fields of later releases.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.config import JsonDict


class Query(BaseModel):
    """The parameters in a URL."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Body(BaseModel):
    """The JSON object that a request sends."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _allow_new_fields(schema: JsonDict) -> None:
    schema.pop("additionalProperties", None)


class Reply(BaseModel):
    """The JSON object that a response returns."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_allow_new_fields)


Json = Any
"""Any JSON value."""
JsonObject = dict[str, Any]

MAX_NAME_LENGTH = 1_000
Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH)]
"""A name: of a workflow, a step or an execution."""
ID_PATTERN = r"^[A-Za-z0-9_.:-]{1,256}$"
NewId = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
"""An execution id or an idempotency root that a request chooses."""
EntryId = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,20}-[0-9]{1,20}$")]
"""The id of an entry of a stream: of a start, or of a dead letter."""
Time = Annotated[str, Field(examples=["2026-01-31T12:00:00.000Z"])]
"""A time in UTC, as in ISO 8601."""
