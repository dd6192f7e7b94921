"""Dead letters: events that were rejected, with the reason. They can be sent again or dropped."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

from pydantic import Field

from orchestrator.application.explain.letter_redaction import redact_letter
from orchestrator.redis_rq.dead_letters import DeadLetter, DeadLetterNotFound
from orchestrator.web.api.models import EntryId, Query, Reply
from orchestrator.web.api.route import ApiRoute, Call
from orchestrator.web.instance import Instance
from orchestrator.web.problems import Problem

MAX_LIMIT = 500
PROBLEMS = {404: "There is no dead letter with this id."}


class LettersQuery(Query):
    reason: str = Field("", description="Only letters whose reason contains this text.")
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 50
    after: EntryId | None = Field(None, description="The `cursor` of the page before.")


class Letter(Reply):
    """A rejected event. Its secrets are redacted; sending it again sends the original."""

    entry: str
    reason: str
    stream: str
    source: str = Field(description="The id that the event had in its stream.")
    event: dict[str, str]
    problem: str | None = Field(description="Why it cannot be sent again; null if it can.")


class Letters(Reply):
    """Dead letters, the newest first."""

    letters: list[Letter]
    cursor: str | None = Field(description="For `after` of the next page; null at the end.")


class Resent(Reply):
    entry: str
    sent: str = Field(description="The id of the event in its stream.")
    stream: str


class Dropped(Reply):
    entry: str
    dropped: bool


def list_letters(call: Call, query: LettersQuery) -> Letters:
    """List dead letters, the newest first."""
    found = list(islice(call.instance.dead_letters.newest(query.reason, query.after), query.limit + 1))
    shown = found[: query.limit]
    return Letters(
        letters=[_show(call.instance, one) for one in shown],
        cursor=shown[-1].entry if len(found) > query.limit else None,
    )


def get_letter(call: Call, entry: EntryId) -> Letter:
    """Get a dead letter with its event."""
    return _show(call.instance, call.instance.dead_letters.get(entry))


def resend(call: Call, entry: EntryId) -> Resent:
    """Send a rejected event again, and remove its letter."""
    letters = call.instance.dead_letters
    letter = letters.get(entry)
    problem = letters.problem(letter)
    if problem is not None:
        raise Problem(409, "rejected", f"it cannot be sent again: {problem}")
    sent = letters.replay(letter)
    if sent is None:
        raise DeadLetterNotFound(entry)
    call.result = f"sent as {sent}"
    return Resent(entry=entry, sent=sent, stream=letter.stream)


def drop(call: Call, entry: EntryId) -> Dropped:
    """Permanently delete a dead letter."""
    letters = call.instance.dead_letters
    return Dropped(entry=entry, dropped=letters.drop(letters.get(entry)))


def _show(instance: Instance, letter: DeadLetter) -> Letter:
    reason, event = redact_letter(letter.reason, letter.fields)
    return Letter(
        entry=letter.entry,
        reason=reason,
        stream=letter.stream,
        source=letter.source,
        event=event,
        problem=instance.dead_letters.problem(letter),
    )


ROUTES = [
    ApiRoute("GET", "/dead-letters", list_letters, problems={400: "A parameter is wrong."}),
    ApiRoute("GET", "/dead-letters/{entry}", get_letter, problems=PROBLEMS),
    ApiRoute(
        "POST", "/dead-letters/{entry}/resend", resend, problems={**PROBLEMS, 409: "It cannot be sent again."}
    ),
    ApiRoute("DELETE", "/dead-letters/{entry}", drop, problems=PROBLEMS),
]
