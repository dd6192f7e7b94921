"""Serves the files of the page, and the health of this process."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from orchestrator.web.problems import Problem
from orchestrator.web.static_files import FILES, TYPES

FOR_EVER = "public, max-age=31536000, immutable"


def serve(request: Request) -> Response:
    name: str = request.path_params["file"]
    found = FILES.get(name)
    if found is None:
        raise Problem(404, "not_found", f"there is no file {name[:80]!r}")
    # Its path has the digest of the file: another content has another path.
    headers = {"Cache-Control": FOR_EVER if request.url.query else "no-cache"}
    return Response(found, headers=headers, media_type=TYPES[name.rpartition(".")[2]])


def health(request: Request) -> Response:
    """This process serves requests. Whether Redis can be used is a question of the page Doctor."""
    return PlainTextResponse("ok\n")
