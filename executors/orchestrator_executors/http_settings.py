"""Reads and checks the settings of the executor `http`, from the configuration of a source and from inputs.

    only in the source         input_mode, param_name
    only in the inputs         payload
    in either                  every other setting

The settings of a source are fixed. Inputs may add settings that the source does not have, and further names
in `headers` and `query`. Of the settings of the source they may change only OVERRIDABLE_SETTINGS: timeouts,
and which responses are accepted. If a source has credentials or the like, inputs cannot set the URL:
otherwise an input could send a token to another host.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import unquote, urlencode

from .http_values import check_mapping, check_text, read_choice, read_integer, read_seconds, scalar_to_text
from .network import host_of
from .settings import Refused, check_encodable, suggest

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
TRACEPARENT = "traceparent"


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
"""Methods that a server may execute twice if a request is repeated."""
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
"""Headers about the transport and the target of a request: only the worker sets them."""
NON_SECRET_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""Headers without secrets: another origin may see them, and an error message may contain them."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_CODES = re.compile(r"([1-5])xx|([1-5]\d\d)(?:-([1-5]\d\d))?")


@dataclass(frozen=True)
class HttpCall:
    """One request, and which responses are accepted."""

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


def read_call(
    inputs: Mapping[str, Any], configuration: Mapping[str, Any], idempotency_key: str, traceparent: str = ""
) -> HttpCall:
    """Build the request from all settings; Refused, with the name of the setting, if one is wrong."""
    _check_names(configuration, HttpConfiguration.__annotations__, "the configuration")
    _check_names(inputs, HttpInputs.__annotations__, "the input")
    settings = _merge(_drop_nulls(configuration), _drop_nulls(inputs))
    _move_payload(settings)
    method = _method(settings)
    url = _url(settings)
    secrets, headers = _headers(settings)
    body, kind = _body(settings)
    if kind and "content-type" not in headers:
        headers["content-type"] = ("Content-Type", kind)
    key = settings.get("idempotency_key", method in IDEMPOTENCY_KEY_METHODS)
    if key and IDEMPOTENCY_KEY.lower() not in headers:
        value = idempotency_key if key is True else check_text(key, "idempotency_key")
        headers[IDEMPOTENCY_KEY.lower()] = _header(IDEMPOTENCY_KEY, value)
    if traceparent:
        headers.setdefault(TRACEPARENT, (TRACEPARENT, traceparent))
    timeout_s = read_seconds(settings, "timeout", TIMEOUT_S, MAX_TIMEOUT_S)
    connect_timeout_s = read_seconds(settings, "connect_timeout", CONNECT_TIMEOUT_S, MAX_TIMEOUT_S)
    return HttpCall(
        method=method,
        url=url,
        headers=tuple(headers.values()),
        body=body,
        secrets=tuple(secrets),
        success=_success(settings.get("success", "2xx")),
        timeout_s=timeout_s,
        connect_timeout_s=min(timeout_s, connect_timeout_s),
        max_bytes=_max_bytes(settings),
        max_redirects=read_integer(settings, "max_redirects", DEFAULT_REDIRECTS, MAX_REDIRECTS),
        returns_body=read_choice(settings, "returns", ("answer", "body")) == "body",
    )


def read_url(written: str) -> httpx.URL:
    import httpx

    try:
        url = httpx.URL(written)
    except (httpx.InvalidURL, ValueError) as error:
        raise Refused(f"the URL cannot be used: {type(error).__name__}") from None
    if url.scheme not in ("http", "https") or not host_of(url):
        raise Refused("the URL cannot be used: it must begin with http:// or https:// and have a host")
    if url.port is not None and not 0 < url.port < 65_536:
        raise Refused("the URL cannot be used: its port must be from 1 to 65,535")
    if url.userinfo:
        raise Refused("the URL cannot be used: it contains credentials, which belong in auth")
    return url.copy_with(fragment=None)


# ---- the configuration and the inputs


def _check_names(settings: Mapping[str, Any], known: Collection[str], where: str) -> None:
    for name in settings:
        if name not in known:
            raise Refused(f"{where} has an unknown setting {name!r}{suggest(str(name), known)}")


def _drop_nulls(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Treat null as absent: an expression without a result is null."""
    return {name: value for name, value in settings.items() if value is not None}


def _merge(source: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    url_settings = {"url", "base_url"}
    sent = sorted({"auth", "headers", "query"} & source.keys())
    if url_settings & source.keys() and (again := sorted(url_settings & inputs.keys())):
        raise Refused(f"{again[0]} cannot be an input: the source sets the URL")
    if sent and url_settings & inputs.keys():
        raise Refused(f"the source has {sent[0]}, so the source, not the input, must set url or base_url")
    merged = dict(source)
    for name, value in inputs.items():
        if name not in source or name in OVERRIDABLE_SETTINGS:
            merged[name] = value
        elif name in ("headers", "query"):
            merged[name] = _combine(check_mapping(source[name], name), check_mapping(value, name), name)
        else:
            raise Refused(f"{name} cannot be an input: the source sets it")
    return merged


def _combine(source: dict[str, Any], inputs: dict[str, Any], where: str) -> dict[str, Any]:
    """Add names of the inputs to the headers or the query of the source."""
    fixed = {_normalize(name, where) for name in source}
    for name in inputs:
        if _normalize(name, where) in fixed:
            raise Refused(f"{where}.{name} cannot be an input: the source sets it")
    return {**source, **inputs}


def _normalize(name: str, where: str) -> str:
    return name.lower() if where == "headers" else name


def _move_payload(settings: dict[str, Any]) -> None:
    """Replace `payload` by a query parameter or the JSON body, as `input_mode` of the source says."""
    payload = settings.pop("payload", None)
    mode = read_choice(settings, "input_mode", ("", "parameter", "body"))
    name = check_text(settings.get("param_name", "id"), "param_name")
    if payload is None:
        return
    if not mode:
        raise Refused("payload needs input_mode in the source: parameter or body")
    settings.setdefault("method", "GET")
    if mode == "body":
        if "json" in settings:
            raise Refused("payload and json cannot both be the body")
        settings["json"] = payload
    else:
        query = check_mapping(settings.get("query", {}), "query")
        settings["query"] = _combine(query, {name: payload}, "query")


# ---- the request


def _method(settings: Mapping[str, Any]) -> str:
    if "method" not in settings:
        if sent := [name for name in ("json", "form", "body") if name in settings]:
            raise Refused(f"{sent[0]} needs a method: POST, PUT or PATCH")
        return "GET"
    method = check_text(settings["method"], "method").upper()
    if method not in METHODS:
        raise Refused(f"method must be one of {', '.join(METHODS)}")
    return method


def _url(settings: Mapping[str, Any]) -> httpx.URL:
    if ("url" in settings) == ("base_url" in settings):
        raise Refused("a call needs either url, or base_url and path")
    if "url" in settings:
        if "path" in settings:
            raise Refused("path goes with base_url, not with url")
        url = read_url(check_text(settings["url"], "url"))
    else:
        url = read_url(check_text(settings["base_url"], "base_url"))
        if url.query:
            raise Refused("base_url has a query, which belongs in the setting query")
        path = _path(check_text(settings.get("path", ""), "path"))
        url = read_url(f"{str(url).rstrip('/')}/{path}")
    pairs = _pairs(settings.get("query", {}), "query")
    if doubled := [name for name, _ in pairs if name in url.params]:
        raise Refused(f"query.{doubled[0]} is in the url already")
    query = b"&".join(part for part in (url.query, urlencode(pairs).encode()) if part)
    return url.copy_with(query=query) if query else url


def _path(written: str) -> str:
    """A path below base_url. It may contain data of an execution, which must not lead elsewhere."""
    path = written.lstrip("/")
    if re.search(r"[?#\\\x00-\x1f\x7f]", path):
        raise Refused("path has a ? # \\ or a control character; a query belongs in the setting query")
    plain = unquote(path).replace("\\", "/")
    if any(segment in (".", "..") for segment in plain.split("/")):
        raise Refused("path has a segment . or .., which could lead out of base_url")
    return path


def _headers(settings: Mapping[str, Any]) -> tuple[list[str], dict[str, tuple[str, str]]]:
    """The secrets, which error messages must not contain, and all headers by their lower-case names."""
    headers = {"user-agent": ("User-Agent", "rq-orchestrator"), "accept": ("Accept", "*/*")}
    secrets: list[str] = []
    seen: set[str] = set()
    for name, value in check_mapping(settings.get("headers", {}), "headers").items():
        header = _header(name, value)
        lower = header[0].lower()
        if lower in RESERVED_HEADERS:
            raise Refused(f"headers.{name} cannot be set: the worker sets it")
        if lower in seen:
            raise Refused(f"headers.{name} is set twice")
        seen.add(lower)
        headers[lower] = header
        if lower not in NON_SECRET_HEADERS:
            secrets.append(header[1])
    if "auth" in settings:
        (name, value), auth_secrets = _auth(check_mapping(settings["auth"], "auth"))
        if name.lower() in seen:
            raise Refused(f"headers.{name} and auth set the same header: use one of them")
        headers[name.lower()] = (name, value)
        secrets += [value, *auth_secrets]
    return secrets, headers


def _auth(auth: dict[str, Any]) -> tuple[tuple[str, str], list[str]]:
    """The header for authentication, and the secrets in it."""
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
                raise Refused(f"auth.header.name cannot be {name}: the worker sets that header")
            return _header(name, value, "auth.header"), [value]
    raise Refused(
        "auth must be {basic: {user, password}}, {bearer: token} or {header: {name, value}}, all of strings"
    )


def _header(name: Any, value: Any, where: str = "") -> tuple[str, str]:
    where = where or f"headers.{name}"
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise Refused(f"{where!r} is not the name of a header")
    text = scalar_to_text(value, where)
    if _CONTROL.search(text):
        raise Refused(f"{where} has a line break or another control character in its value")
    return name, check_encodable(text.strip(), where)


def _body(settings: Mapping[str, Any]) -> tuple[bytes, str]:
    """The body of the request, and its content type."""
    contents = [name for name in ("json", "form", "body") if name in settings]
    if len(contents) > 1:
        raise Refused(f"{contents[0]} and {contents[1]} cannot both be the body")
    match contents:
        case ["json"]:
            try:
                text = json.dumps(
                    settings["json"], ensure_ascii=False, allow_nan=False, separators=(",", ":")
                )
            except (TypeError, ValueError) as error:
                raise Refused(f"json cannot be encoded as JSON: {type(error).__name__}") from None
            return check_encodable(text, "json").encode(), "application/json"
        case ["form"]:
            return urlencode(_pairs(settings["form"], "form")).encode(), "application/x-www-form-urlencoded"
        case ["body"]:
            text = check_encodable(check_text(settings["body"], "body"), "body")
            return text.encode(), "text/plain; charset=utf-8"
    return b"", ""


def _pairs(values: Any, where: str) -> list[tuple[str, str]]:
    """The names and values of a query or a form; a list repeats the name, and null is left out."""
    pairs = []
    for name, value in check_mapping(values, where).items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                text = scalar_to_text(one, f"{where}.{name}")
                pairs.append((check_encodable(name, where), check_encodable(text, f"{where}.{name}")))
    return pairs


# ---- the response


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
        raise Refused("success must have at least one status code")
    return frozenset(codes)


def _max_bytes(settings: Mapping[str, Any]) -> int:
    text = os.environ.get(BYTES_VARIABLE, "")
    if text and not text.isdecimal():
        raise Refused(f"{BYTES_VARIABLE} must be a whole number of bytes")
    worker_max = int(text) if text else MAX_RESPONSE_BYTES
    max_bytes = read_integer(settings, "max_response_bytes", min(DEFAULT_RESPONSE_BYTES, worker_max), 2**63)
    if max_bytes > worker_max:
        raise Refused(
            f"max_response_bytes is {max_bytes:,}, but {BYTES_VARIABLE} of this worker allows {worker_max:,}"
        )
    return max_bytes
