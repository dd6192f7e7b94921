"""The page of dead letters: rejected events with their reasons, to be sent again or dropped.

What is shown is redacted; sending an event again sends the original. As with executions, an action on all
letters with a reason shows first which they are, and takes these alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from orchestrator.application.explain.letter_redaction import redact_letter
from orchestrator.redis_rq.dead_letters import DeadLetter, DeadLetterNotFound, DeadLetters
from orchestrator.web.actions import log_action
from orchestrator.web.execution_filters import read_limit
from orchestrator.web.forms import Form, with_form
from orchestrator.web.instance import instance_of
from orchestrator.web.problems import Problem
from orchestrator.web.rendering import path_of, render

MAX_LETTERS = 1_000
"""A bulk action of the page takes so many letters at most, the newest."""
MAX_SHOWN = 20
DONE = {"resend": "sent again", "drop": "dropped"}


@dataclass(frozen=True, slots=True)
class Row:
    """A letter as it is shown: without secrets. `problem` says why its event cannot be sent again."""

    entry: str
    kind: str
    execution_id: str
    reason: str
    source: str
    stream: str
    fields: dict[str, str]
    problem: str | None


def show(request: Request) -> Response:
    letters, query = instance_of(request).dead_letters, request.query_params
    reason = query.get("reason", "")
    page = letters.page(reason, read_limit(query), _read_entry(query.get("after")))
    return render(
        request,
        "dead_letters.html",
        rows=[_make_row(letters, one) for one in page.letters],
        cursor=page.cursor,
        count=letters.count(),
        reason=reason,
        is_first="after" not in query,
        limit=query.get("limit"),
    )


@with_form
def preview(request: Request, form: Form) -> Response:
    """Say which letters an action would take, and ask."""
    letters, action, reason = instance_of(request).dead_letters, _read_action(form), form.get("reason", "")
    cursor = None
    if form.get("scope") == "all":
        page = letters.page(reason, MAX_LETTERS)
        found, cursor = page.letters, page.cursor
    else:
        found = _find(letters, form.getlist("entry"))
    problems = [letters.problem(one) for one in found] if action == "resend" else []
    return render(
        request,
        "letters_preview.html",
        page_name="dead_letters",
        action=action,
        entries=[one.entry for one in found],
        rows=[_make_row(letters, one) for one in found[:MAX_SHOWN]],
        problem_count=sum(problem is not None for problem in problems),
        is_cut=cursor is not None,
        reason=reason,
    )


@with_form
def run(request: Request, form: Form) -> Response:
    """Send the events of some letters again, or drop the letters."""
    letters, action = instance_of(request).dead_letters, _read_action(form)
    entries = form.get("entries", "").split()[:MAX_LETTERS]
    rejected: dict[str, str] = {}
    done: list[str] = []
    for entry in entries:
        problem = _apply(letters, action, entry)
        log_action(request, f"{action} dead letter", entry, problem or "ok")
        if problem is None:
            done.append(entry)
        else:
            rejected[entry] = problem
    if len(entries) == 1 and done:
        notice = "resent" if action == "resend" else "dropped"
        return RedirectResponse(path_of(request, "dead_letters", notice=notice), 303)
    return render(
        request,
        "letters_result.html",
        page_name="dead_letters",
        done=done,
        rejected=rejected,
        word=DONE[action],
    )


ROUTES = [
    Route("/dead-letters", show, name="dead_letters"),
    Route("/dead-letters/preview", preview, methods=["POST"], name="preview_letters"),
    Route("/dead-letters/run", run, methods=["POST"], name="run_letters"),
]


def _apply(letters: DeadLetters, action: str, entry: str) -> str | None:
    """Take one letter; returns why it cannot be."""
    try:
        letter = letters.get(entry)
    except DeadLetterNotFound:
        return "it was sent again or dropped meanwhile"
    if action == "drop":
        return None if letters.drop(letter) else "it was sent again or dropped meanwhile"
    problem = letters.problem(letter)
    if problem is not None:
        return problem
    return None if letters.replay(letter) else "it was sent again or dropped meanwhile"


def _find(letters: DeadLetters, entries: Sequence[str]) -> list[DeadLetter]:
    """Those of the selected letters that still exist."""
    found = []
    for entry in dict.fromkeys(entries[:MAX_LETTERS]):
        try:
            found.append(letters.get(entry))
        except DeadLetterNotFound:
            continue
    return found


def _make_row(letters: DeadLetters, letter: DeadLetter) -> Row:
    reason, fields = redact_letter(letter.reason, letter.fields)
    kind = fields.get("type", "start" if letter.stream.endswith(":starts") else "?")
    execution = fields.get("execution") or fields.get("execution_id", "")
    return Row(
        letter.entry,
        kind,
        execution.partition("#")[2] or execution,
        reason,
        letter.source,
        letter.stream,
        fields,
        letters.problem(letter),
    )


def _read_action(form: Form) -> str:
    action = form.get("action", "")
    if action not in DONE:
        raise Problem(400, "bad_form", f"action must be one of {', '.join(DONE)}, not {action[:40]!r}")
    return action


def _read_entry(text: str | None) -> str | None:
    """An entry id of a stream; raises Problem for anything else."""
    if not text:
        return None
    parts = text.split("-")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) <= 20 for part in parts):
        raise Problem(400, "bad_query", f"after must be the entry id of a letter, not {text[:40]!r}")
    return text
