"""Reads what a request sends into the models of its route; raises Problem with everything that is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.datastructures import ImmutableMultiDict

from orchestrator.application.spec.document import check_data
from orchestrator.application.values.document_limits import DATA_LIMITS
from orchestrator.redis_rq.json_codec import loads
from orchestrator.web.problems import Problem

Model = TypeVar("Model", bound=BaseModel)

JSON_TYPE = "application/json"
MAX_PROBLEMS = 100
MAX_SHOWN_CHARS = 80


def read_path(parameters: Mapping[str, TypeAdapter[Any]], given: Mapping[str, str]) -> dict[str, Any]:
    """Read the parts of a path. One that no id can be is not found."""
    found = {}
    for name, adapter in parameters.items():
        try:
            found[name] = adapter.validate_python(given[name])
        except ValidationError:
            detail = f"{_shorten(given[name])!r} is no {name} that could exist"
            raise Problem(404, "not_found", detail) from None
    return found


def read_query(model: type[Model], given: ImmutableMultiDict[str, str], ignored: Iterable[str] = ()) -> Model:
    """Read the parameters of a URL. One that is not a list may be given once."""
    found: dict[str, Any] = {}
    for name in given:
        values = given.getlist(name)
        if name in model.model_fields and _is_list(model.model_fields[name].annotation):
            found[name] = values
        elif len(values) > 1:
            raise Problem(400, "bad_query", f"the parameter {_shorten(name)!r} is given {len(values)} times")
        elif name not in ignored:
            found[name] = values[0]
    try:
        return model.model_validate(found)
    except ValidationError as error:
        problems = _list_problems(error, model)
        raise Problem(400, "bad_query", _summarize(problems), problems) from None


def read_body(model: type[Model], body: bytes, content_type: str) -> Model:
    """Read a body of JSON. A route whose keys are all optional takes an empty body too."""
    data = read_json(body, content_type) if body else {}
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = _list_problems(error, model)
        raise Problem(422, "invalid_request", _summarize(problems), problems) from None


def read_any(model: Any, body: bytes, content_type: str) -> Any:
    """Read a body that may be any JSON."""
    return read_json(body, content_type)


def read_json(body: bytes, content_type: str) -> Any:
    """Parse JSON within the limits of inputs, which no later part of the system has to check again."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind != JSON_TYPE and not (kind.startswith("application/") and kind.endswith("+json")):
        shown = _shorten(kind) or "none"
        detail = f"the body must be JSON: send the header Content-Type: {JSON_TYPE} (it is {shown})"
        raise Problem(415, "unsupported_media_type", detail)
    try:
        data = loads(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise Problem(400, "bad_json", "the body is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Problem(400, "bad_json", f"the body is not JSON: {reason}") from None
    problems = check_data(data, limits=DATA_LIMITS)
    if problems:
        shown_problems = [one.as_dict() for one in problems[:MAX_PROBLEMS]]
        raise Problem(422, "invalid_request", _summarize(shown_problems), shown_problems)
    return data


def _list_problems(error: ValidationError, model: type[BaseModel]) -> list[dict[str, Any]]:
    """Each problem with the path of its field, as the problems of a document have it."""
    found = []
    for one in error.errors(include_url=False, include_input=True)[:MAX_PROBLEMS]:
        location = one["loc"]
        problem: dict[str, Any] = {"path": _format_path(location), "code": one["type"], "message": one["msg"]}
        if one["type"] == "extra_forbidden":
            name = str(location[-1])
            problem |= {"code": "unknown_key", "message": f"{_shorten(name)!r} is not known here"}
            close = get_close_matches(name, _names_at(model, location[:-1]), n=1)
            if close:
                problem["hint"] = f"did you mean {close[0]!r}?"
        elif one["type"] == "missing":
            problem |= {"code": "missing_key", "message": "this key is required"}
        elif one["type"] in ("model_type", "dict_type"):
            problem |= {"code": "bad_type", "message": "this must be a JSON object"}
        elif one["type"] == "value_error":
            problem["message"] = str(one["ctx"]["error"])
        found.append(problem)
    return found


def _names_at(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """The names of the fields of the model at a location."""
    for part in location:
        if isinstance(part, str) and part in model.model_fields:
            inner = _find_model(model.model_fields[part].annotation)
            if inner is None:
                return []
            model = inner
    return list(model.model_fields)


def _find_model(annotation: Any) -> type[BaseModel] | None:
    """The model in an annotation such as `list[Model]` or `Model | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_find_model, get_args(annotation))), None)


def _is_list(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType):
        return any(_is_list(one) for one in get_args(annotation) if one is not NoneType)
    return get_origin(annotation) is list


def _summarize(problems: Sequence[dict[str, Any]]) -> str:
    """One line: the first problem, and how many more there are."""
    first = problems[0]
    path = f"{first['path']}: " if first["path"] else ""
    hint = f"; {first['hint']}" if first.get("hint") else ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{path}{first['message']}{hint}{more}"


def _format_path(location: Sequence[int | str]) -> str:
    text = "".join(f"[{one}]" if isinstance(one, int) else f".{_shorten(one)}" for one in location)
    return text.removeprefix(".")


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"
