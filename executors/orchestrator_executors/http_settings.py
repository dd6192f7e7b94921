"""What the executor `http` is told, read and checked: from the configuration of a source and from inputs.

    from the source alone      input_mode, param_name
    from the inputs alone      payload
    from either                every other setting

What a source says holds. Inputs add to it: settings that it does not have, and further names in `headers`
and `query`. Of its own settings they change only how long is waited and what is taken for an answer:
OVERRIDABLE_SETTINGS. Where a source says what is sent along, inputs cannot say whereto: a token would go
where an input points.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import unquote, urlencode

from .http_values import (
    check_encodable,
    check_mapping,
    read_choice,
    read_integer,
    read_number,
    scalar_to_text,
    text,
)
from .network import Refused, host_of

if TYPE_CHECKING:
    import httpx

BYTES_VARIABLE = "ORCHESTRATOR_HTTP_MAX_BYTES"
MAX_RESPONSE_BYTES = 10 * 1024 * 1024
DEFAULT_RESPONSE_BYTES = 1024 * 1024
TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
MAX_TIMEOUT_S = 86_400.0
DEFAULT_REDIRECTS = 5
MAX_REDIRECTS = 20
IDEMPOTENCY_KEY = "Idempotency-Key"


class HttpSettings(TypedDict, total=False):
    method: str
    url: str
    base_url: str
    path: str
    headers: dict[str, Any]
    query: dict[str, Any]
    json: Any
    form: dict[str, Any]
    body: str
    auth: dict[str, Any]
    idempotency_key: bool | str
    timeout: float
    connect_timeout: float
    success: int | str | list[int | str]
    max_response_bytes: int
    max_redirects: int
    returns: str


class HttpInputs(HttpSettings, total=False):
    payload: Any


class HttpConfiguration(HttpSettings, total=False):
    input_mode: str
    param_name: str


OVERRIDABLE_SETTINGS = frozenset(
    {"timeout", "connect_timeout", "success", "max_response_bytes", "max_redirects", "returns"}
)
METHODS = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH")
IDEMPOTENCY_KEY_METHODS = frozenset({"POST", "PATCH"})
"""What a server may do twice if it is asked twice."""
RESERVED_HEADERS = frozenset(
    {
        "host",
        "content-length",
        "transfer-encoding",
        "accept-encoding",
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
        "expect",
    }
)
"""Headers that say how a message is carried, or to whom: nobody else sets them."""
NON_SECRET_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""Headers that hold no secret: another origin may see them, and an answer may repeat them."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_CODES = re.compile(r"([1-5])xx|([1-5]\d\d)(?:-([1-5]\d\d))?")


@dataclass(frozen=True)
class HttpCall:
    """One request, and what counts as its answer."""

    method: str
    url: httpx.URL
    headers: tuple[tuple[str, str], ...]
    body: bytes
    secrets: tuple[str, ...]
    success: frozenset[int]
    timeout_s: float
    connect_timeout_s: float
    max_bytes: int
    max_redirects: int
    returns_body: bool


def read_call(inputs: Mapping[str, Any], configuration: Mapping[str, Any], idempotency_key: str) -> HttpCall:
    """The request that is meant; Refused, by the name of the setting, if it is none."""
    _check_names(configuration, HttpConfiguration.__annotations__, "the configuration")
    _check_names(inputs, HttpInputs.__annotations__, "the input")
    settings = _merged(_given(configuration), _given(inputs))
    _take_payload(settings)
    method = _method(settings)
    url = _url(settings)
    secrets, headers = _headers(settings)
    body, kind = _body(settings)
    if kind and "content-type" not in headers:
        headers["content-type"] = ("Content-Type", kind)
    key = settings.get("idempotency_key", method in IDEMPOTENCY_KEY_METHODS)
    if key and IDEMPOTENCY_KEY.lower() not in headers:
        said = idempotency_key if key is True else text(key, "idempotency_key")
        headers[IDEMPOTENCY_KEY.lower()] = _header(IDEMPOTENCY_KEY, said)
    timeout_s = read_number(settings, "timeout", TIMEOUT_S, MAX_TIMEOUT_S)
    return HttpCall(
        method=method,
        url=url,
        headers=tuple(headers.values()),
        body=body,
        secrets=tuple(secrets),
        success=_success(settings.get("success", "2xx")),
        timeout_s=timeout_s,
        connect_timeout_s=min(
            timeout_s, read_number(settings, "connect_timeout", CONNECT_TIMEOUT_S, MAX_TIMEOUT_S)
        ),
        max_bytes=_max_bytes(settings),
        max_redirects=read_integer(settings, "max_redirects", DEFAULT_REDIRECTS, 0, MAX_REDIRECTS),
        returns_body=read_choice(settings, "returns", ("answer", "body")) == "body",
    )


def read_url(written: str) -> httpx.URL:
    import httpx

    try:
        url = httpx.URL(written)
    except (httpx.InvalidURL, ValueError) as error:
        raise Refused(f"the URL cannot be used: {type(error).__name__}") from None
    if url.scheme not in ("http", "https") or not host_of(url):
        raise Refused("the URL cannot be used: it must begin with http:// or https://, and name a host")
    if url.port is not None and not 0 < url.port < 65_536:
        raise Refused("the URL cannot be used: there is no such port")
    if url.userinfo:
        raise Refused("the URL cannot be used: it holds credentials, which belong into auth")
    return url.copy_with(fragment=None)


# ---- who says what


def _check_names(given: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for name in given:
        if name not in known:
            likely = get_close_matches(str(name), known, n=1)
            hint = f"; did you mean {likely[0]!r}?" if likely else f"; there are {', '.join(sorted(known))}"
            raise Refused(f"{where} has a setting that http does not know: {name!r}{hint}")


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Null is as good as absent: an expression that finds nothing is null."""
    return {name: value for name, value in settings.items() if value is not None}


def _merged(source: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    places = {"url", "base_url"}
    sent = sorted({"auth", "headers", "query"} & source.keys())
    if places & source.keys() and (again := sorted(places & inputs.keys())):
        raise Refused(f"{again[0]} cannot be an input: the source says where it leads")
    if sent and places & inputs.keys():
        raise Refused(f"the source has {sent[0]}: it must have the url or base_url too, and not the input")
    merged = dict(source)
    for name, value in inputs.items():
        if name not in source or name in OVERRIDABLE_SETTINGS:
            merged[name] = value
        elif name in ("headers", "query"):
            merged[name] = _both(check_mapping(source[name], name), check_mapping(value, name), name)
        else:
            raise Refused(f"{name} cannot be an input: the source says what it is")
    return merged


def _both(source: dict[str, Any], inputs: dict[str, Any], where: str) -> dict[str, Any]:
    fixed = {_compared(name, where) for name in source}
    for name in inputs:
        if _compared(name, where) in fixed:
            raise Refused(f"{where}.{name} cannot be an input: the source says what it is")
    return {**source, **inputs}


def _compared(name: str, where: str) -> str:
    return name.lower() if where == "headers" else name


def _take_payload(settings: dict[str, Any]) -> None:
    """One input that the source says how to send: as a parameter, or as the body."""
    payload = settings.pop("payload", None)
    mode = read_choice(settings, "input_mode", ("", "parameter", "body"))
    name = text(settings.get("param_name", "id"), "param_name")
    if payload is None:
        return
    if not mode:
        raise Refused("payload is not sent by itself: the source says how, by input_mode: parameter or body")
    settings.setdefault("method", "GET")
    if mode == "body":
        if "json" in settings:
            raise Refused("payload and json cannot both be the body")
        settings["json"] = payload
    else:
        settings["query"] = _both(check_mapping(settings.get("query", {}), "query"), {name: payload}, "query")


# ---- the request


def _method(settings: Mapping[str, Any]) -> str:
    if "method" not in settings:
        if sent := [name for name in ("json", "form", "body") if name in settings]:
            raise Refused(f"{sent[0]} is sent by which method? Say method: POST, PUT or PATCH")
        return "GET"
    method = text(settings["method"], "method").upper()
    if method not in METHODS:
        raise Refused(f"method must be one of {', '.join(METHODS)}")
    return method


def _url(settings: Mapping[str, Any]) -> httpx.URL:
    if ("url" in settings) == ("base_url" in settings):
        raise Refused("a call needs url, or base_url and a path: one of the two")
    if "url" in settings:
        if "path" in settings:
            raise Refused("path goes with base_url, and not with url")
        url = read_url(text(settings["url"], "url"))
    else:
        url = read_url(text(settings["base_url"], "base_url"))
        if url.query:
            raise Refused("base_url has a query: say it as query")
        path = _path(text(settings.get("path", ""), "path"))
        url = read_url(f"{str(url).rstrip('/')}/{path}")
    pairs = _pairs(settings.get("query", {}), "query")
    if doubled := [name for name, _ in pairs if name in url.params]:
        raise Refused(f"query.{doubled[0]} stands in the url already")
    query = b"&".join(part for part in (url.query, urlencode(pairs).encode()) if part)
    return url.copy_with(query=query) if query else url


def _path(written: str) -> str:
    """A path below base_url, and nothing else: what is data in it must not lead elsewhere."""
    path = written.lstrip("/")
    if re.search(r"[?#\\\x00-\x1f\x7f]", path):
        raise Refused("path has a ? # \\ or a control character; what follows a ? is said as query")
    plain = unquote(path).replace("\\", "/")
    if any(segment in (".", "..") for segment in plain.split("/")):
        raise Refused("path has . or .. for a segment, which leads out of base_url")
    return path


def _headers(settings: Mapping[str, Any]) -> tuple[list[str], dict[str, tuple[str, str]]]:
    """What an answer must not repeat, and all headers by their names in lower case."""
    made = {"user-agent": ("User-Agent", "rq-orchestrator"), "accept": ("Accept", "*/*")}
    secrets: list[str] = []
    seen: set[str] = set()
    for name, value in check_mapping(settings.get("headers", {}), "headers").items():
        header = _header(name, value)
        lower = header[0].lower()
        if lower in RESERVED_HEADERS:
            raise Refused(f"headers.{name} cannot be given: the worker sets it")
        if lower in seen:
            raise Refused(f"headers.{name} is given twice")
        seen.add(lower)
        made[lower] = header
        if lower not in NON_SECRET_HEADERS:
            secrets.append(header[1])
    if "auth" in settings:
        (name, value), told = _auth(check_mapping(settings["auth"], "auth"))
        if name.lower() in seen:
            raise Refused(f"headers.{name} and auth say the same thing: give one of them")
        made[name.lower()] = (name, value)
        secrets += [value, *told]
    return secrets, made


def _auth(auth: dict[str, Any]) -> tuple[tuple[str, str], list[str]]:
    """The header that says who we are, and the secrets in it."""
    match auth:
        case {"basic": {"user": str(user), "password": str(password), **rest}, **more} if (
            not rest and not more
        ):
            if ":" in user:
                raise Refused("auth.basic.user cannot have a colon")
            pair = b64encode(f"{user}:{password}".encode()).decode()
            return ("Authorization", f"Basic {pair}"), [pair, password]
        case {"bearer": str(token), **more} if token and not more:
            return _header("Authorization", f"Bearer {token}", "auth.bearer"), [token]
        case {"header": {"name": str(name), "value": str(value), **rest}, **more} if not rest and not more:
            if name.lower() in RESERVED_HEADERS:
                raise Refused(f"auth.header.name cannot be {name}: the worker sets that")
            return _header(name, value, "auth.header"), [value]
    raise Refused(
        "auth must be {basic: {user, password}}, {bearer: token} or {header: {name, value}}, all of texts"
    )


def _header(name: Any, value: Any, where: str = "") -> tuple[str, str]:
    where = where or f"headers.{name}"
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise Refused(f"{where!r} is not the name of a header")
    said = scalar_to_text(value, where)
    if _CONTROL.search(said):
        raise Refused(f"{where} has a line break or another control character in its value")
    return name, check_encodable(said.strip(), where)


def _body(settings: Mapping[str, Any]) -> tuple[bytes, str]:
    """What is sent, and its type."""
    given = [name for name in ("json", "form", "body") if name in settings]
    if len(given) > 1:
        raise Refused(f"{given[0]} and {given[1]} cannot both be the body")
    match given:
        case ["json"]:
            try:
                written = json.dumps(
                    settings["json"], ensure_ascii=False, allow_nan=False, separators=(",", ":")
                )
            except (TypeError, ValueError) as error:
                raise Refused(f"json cannot be written as JSON: {type(error).__name__}") from None
            return check_encodable(written, "json").encode(), "application/json"
        case ["form"]:
            return urlencode(_pairs(settings["form"], "form")).encode(), "application/x-www-form-urlencoded"
        case ["body"]:
            return check_encodable(
                text(settings["body"], "body"), "body"
            ).encode(), "text/plain; charset=utf-8"
    return b"", ""


def _pairs(given: Any, where: str) -> list[tuple[str, str]]:
    """Names and values of a query or a form; a list is a name several times, null is left out."""
    pairs = []
    for name, value in check_mapping(given, where).items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                said = scalar_to_text(one, f"{where}.{name}")
                pairs.append((check_encodable(name, where), check_encodable(said, f"{where}.{name}")))
    return pairs


# ---- the answer


def _success(written: Any) -> frozenset[int]:
    codes: set[int] = set()
    for one in written if isinstance(written, list) else [written]:
        found = _CODES.fullmatch(str(one).lower()) if isinstance(one, str | int) else None
        if found is None:
            raise Refused("success must be codes and ranges such as 200, 2xx, 200-204, or a list of them")
        hundreds, first, last = found.groups()
        low, high = (
            (int(hundreds) * 100, int(hundreds) * 100 + 99) if hundreds else (int(first), int(last or first))
        )
        codes.update(range(low, high + 1))
    if not codes:
        raise Refused("success must have a code: no answer could be one")
    return frozenset(codes)


def _max_bytes(settings: Mapping[str, Any]) -> int:
    said = os.environ.get(BYTES_VARIABLE, "")
    if said and not said.isdecimal():
        raise Refused(f"{BYTES_VARIABLE} must be a whole number of bytes")
    most = int(said) if said else MAX_RESPONSE_BYTES
    wanted = read_integer(settings, "max_response_bytes", min(DEFAULT_RESPONSE_BYTES, most), 0, 2**63)
    if wanted > most:
        raise Refused(f"max_response_bytes is {wanted:,}; this worker takes {most:,}, by {BYTES_VARIABLE}")
    return wanted
