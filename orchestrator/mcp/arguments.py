"""The arguments of tools: models that are checked strictly, and their JSON schemas for clients."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from orchestrator.application.spec.document import check_data
from orchestrator.application.values.document_limits import DATA_LIMITS
from orchestrator.mcp.errors import ToolError

MAX_PROBLEMS = 20
MAX_SHOWN_CHARS = 80

Name = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]
"""A name: of a workflow, a step or an execution."""
ExecutionId = Annotated[Name, Field(description="An execution id, as list_executions returns it.")]
WaitSeconds = Annotated[
    int, Field(ge=0, le=50, description="Wait so long for its end before returning; 0 does not wait.")
]
Reason = Annotated[Name | None, Field(description="Why; kept in the history.")]
JsonObject = dict[str, Any]


class Arguments(BaseModel):
    """The arguments of a tool. Unknown ones are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=Arguments)


def read_arguments(model: type[Model], given: Mapping[str, Any]) -> Model:
    """Read the arguments of a call; raises ToolError with everything that is wrong."""
    problems = [one.as_dict() for one in check_data(dict(given), limits=DATA_LIMITS)]
    if not problems:
        try:
            return model.model_validate(given)
        except ValidationError as error:
            problems = _list_problems(error, model)
    raise ToolError("invalid_request", _summarize(problems), problems[:MAX_PROBLEMS])


def make_schema(model: type[Arguments]) -> JsonObject:
    """The JSON schema of arguments, without the titles that pydantic makes of names."""
    schema = model.model_json_schema()
    found: JsonObject = _without_titles(schema)
    found.pop("description", None)
    return found


def _without_titles(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_titles(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
    }


def _list_problems(error: ValidationError, model: type[Arguments]) -> list[JsonObject]:
    found = []
    for one in error.errors(include_url=False, include_input=False, include_context=False)[:MAX_PROBLEMS]:
        path = ".".join(_shorten(str(part)) for part in one["loc"])
        problem: JsonObject = {"path": path, "code": one["type"], "message": one["msg"]}
        if one["type"] == "extra_forbidden":
            problem |= {"code": "unknown_key", "message": "this tool has no such argument"}
            close = get_close_matches(path, list(model.model_fields), n=1)
            problem |= {"hint": f"did you mean {close[0]!r}?"} if close else {}
        elif one["type"] == "missing":
            problem |= {"code": "missing_key", "message": "this argument is required"}
        found.append(problem)
    return found


def _summarize(problems: list[JsonObject]) -> str:
    """One line: the first problem, and how many more there are."""
    first = problems[0]
    path = f"{first['path']}: " if first["path"] else ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{path}{first['message']}{more}"


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"
