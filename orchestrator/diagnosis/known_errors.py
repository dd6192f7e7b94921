"""The errors that a request may end with, each with a code for programs and a message for people.

`code` is the same word that events, replies and dead letters use, where they know the error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import NoPermissionError, ResponseError

from orchestrator.application import errors
from orchestrator.client.controls import ControlRejected
from orchestrator.client.replies import NoReply, RequestLost
from orchestrator.diagnosis.why import UnknownStep
from orchestrator.redis_rq.dead_letters import DeadLetterNotFound
from orchestrator.redis_rq.queries.listing import InvalidCursor


@dataclass(frozen=True, slots=True)
class KnownError:
    """An error that is no defect. `problems` lists everything that is wrong with a document or with inputs;
    `more` are further members for programs, such as the entry of a start that has no reply yet."""

    code: str
    message: str
    problems: Sequence[Mapping[str, Any]] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


_FORBIDDEN = KnownError("forbidden_by_redis", "the Redis user of this process may not do this")
_NO_PERMISSION_IN_SCRIPT = re.compile("^(The user executing the script can't|ACL failure in script)")
"""Redis has an error of its own for a command that a script may not call."""


def find_known_error(error: Exception) -> KnownError | None:
    """The known error that an exception is; None for a defect."""
    match error:
        case errors.RecordNotFound() | UnknownStep() | DeadLetterNotFound():
            return KnownError("not_found", str(error))
        case errors.PayloadMissing():
            return KnownError("payload_missing", str(error))
        case errors.HistoryNotKept():
            return KnownError("history_not_kept", str(error))
        case InvalidCursor():
            return KnownError("bad_query", str(error))
        case errors.InvalidSpec(problems=problems):
            return KnownError("invalid_spec", str(error), [one.as_dict() for one in problems])
        case errors.StartRejected(problems=rejected):
            return KnownError("start_rejected", str(error), rejected)
        case ControlRejected():
            return KnownError("rejected", str(error))
        case errors.TooLarge():
            return KnownError("too_large", str(error))
        case errors.Busy():
            return KnownError("busy", str(error))
        case RequestLost():
            return KnownError("request_lost", str(error))
        case NoReply():
            return KnownError("no_reply", str(error), more={"entry": error.entry_id})
        case errors.Unavailable():
            return KnownError("unavailable", f"cannot use Redis: {str(error).removeprefix('Redis: ')}")
        case errors.AccessDenied():
            return KnownError("unavailable", str(error))
        case NoPermissionError():
            return _FORBIDDEN
        case ResponseError() if _NO_PERMISSION_IN_SCRIPT.search(str(error)):
            return _FORBIDDEN
        case errors.RecordConflict():
            return KnownError("conflict", str(error))
        case errors.OrchestratorError():
            is_mistake = getattr(error, "exit_code", None) == 2
            return KnownError("error" if is_mistake else "internal", str(error))
    return None
