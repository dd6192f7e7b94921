"""A client of the HTTP API that checks every response against the OpenAPI document.

api.get("/executions", status="failed").body["executions"]
api.post("/executions", {"workflow": "order"}, expect=201)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import httpx
from jsonschema import Draft202012Validator

from servers.page_server import PageServer

ROOT = "/api/v1"
Json = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """A response: its status, its headers, and its JSON."""

    status: int
    headers: httpx.Headers
    body: Any
    text: str

    def __getitem__(self, key: str) -> Any:
        return self.body[key]


@dataclass
class ApiClient:
    """The API of a server. `expect` is the status of a response, by default any below 300."""

    site: PageServer
    headers: dict[str, str] = field(default_factory=dict)
    root: str = ROOT

    @cached_property
    def document(self) -> Json:
        found: Json = self.site.get(f"{self.root}/openapi.json", headers=self.headers).json()
        return found

    def get(self, path: str, expect: int | None = None, **query: Any) -> Reply:
        return self.request("GET", path, expect, params=query)

    def post(self, path: str, body: Any = None, expect: int | None = None, **options: Any) -> Reply:
        return self.request("POST", path, expect, **({} if body is None else {"json": body}), **options)

    def delete(self, path: str, expect: int | None = None, **query: Any) -> Reply:
        return self.request("DELETE", path, expect, params=query)

    def request(self, method: str, path: str, expect: int | None = None, **options: Any) -> Reply:
        """Send a request, and check that its response is as the document says."""
        headers = {**self.headers, **options.pop("headers", {})}
        response = self.site.request(method, self.root + path, headers=headers, **options)
        if expect is None:
            assert response.status_code < 300, response.text
        else:
            assert response.status_code == expect, response.text
        kind = response.headers.get("content-type", "").partition(";")[0]
        body = response.json() if kind.endswith("json") and response.content else None
        self._check(method, path, response.status_code, kind, body)
        return Reply(response.status_code, response.headers, body, response.text)

    def _check(self, method: str, path: str, status: int, kind: str, body: Any) -> None:
        described = self._find(method, path)
        if described is None or method == "HEAD":
            return
        responses = described["responses"]
        assert str(status) in responses, f"{method} {path}: the document has no status {status}"
        content = responses[str(status)].get("content")
        if content is None:
            assert body is None
            return
        assert kind in content, f"{method} {path}: the document has no {kind} for {status}"
        if kind.endswith("json"):
            self._validate(content[kind]["schema"], body)

    def _validate(self, schema: Json, body: Any) -> None:
        Draft202012Validator({**schema, "components": self.document["components"]}).validate(body)

    def _find(self, method: str, path: str) -> Json | None:
        """What the document says about a path; a fixed path wins over one with parameters."""
        for template in sorted(self.document["paths"], key=lambda one: one.count("{")):
            pattern = re.sub(r"\\\{.*?\\\}", "[^/]+", re.escape(template))
            operations = self.document["paths"][template]
            if re.fullmatch(pattern, path) and method.lower() in operations:
                found: Json = operations[method.lower()]
                return found
        return None
