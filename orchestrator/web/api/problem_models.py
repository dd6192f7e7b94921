"""The models of problems, as problem+json has them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.web.api.models import Reply


class PartProblem(BaseModel):
    """One thing that is wrong, and where."""

    model_config = ConfigDict(extra="allow")

    path: str = Field(description="The key or the part of the document; empty for the whole.")
    code: str
    message: str
    hint: str | None = None
    line: int | None = None
    column: int | None = None


class ProblemReply(BaseModel):
    """Why a request was not served, as RFC 9457 defines it. `code` is for programs, `detail` for people."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    code: str
    detail: str
    problems: list[PartProblem] = Field([], description="Everything that is wrong with a body or a document.")


class ItemProblem(Reply):
    """The problem of one of many starts."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    problems: list[dict[str, Any]] = Field([])
    entry: str | None = None
