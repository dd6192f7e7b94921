"""The login: a form that takes a token, and gives a cookie for it."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from orchestrator.web.access.sessions import COOKIE, MAX_AGE_S, make_cookie
from orchestrator.web.access.users import Role
from orchestrator.web.actions import log_action
from orchestrator.web.forms import Form, with_form
from orchestrator.web.problems import Problem
from orchestrator.web.rendering import path_of, render


def show(request: Request) -> Response:
    if request.app.state.policy.tokens is None:
        raise Problem(404, "not_found", "this page has no login")
    return render(request, "login.html", is_wrong=False)


@with_form
def log_in(request: Request, form: Form) -> Response:
    policy = request.app.state.policy
    if policy.tokens is None:
        raise Problem(404, "not_found", "this page has no login")
    token = form.get("token", "").strip()
    user = policy.check_token(token)
    if user is None or not user.may(Role.READ):
        log_action(request, "login", "this page", "wrong_token")
        return render(request, "login.html", 401, is_wrong=True)
    request.state.user = user
    log_action(request, "login", "this page", "ok")
    response = RedirectResponse(path_of(request, "home"), 303)
    response.set_cookie(
        COOKIE,
        make_cookie(token, time.time()),
        max_age=MAX_AGE_S,
        path=request.state.root or "/",
        secure=request.scope["scheme"] == "https",
        httponly=True,
        samesite="strict",
    )
    return response


@with_form
def log_out(request: Request, form: Form) -> Response:
    response = RedirectResponse(path_of(request, "login"), 303)
    response.delete_cookie(COOKIE, path=request.state.root or "/")
    return response
