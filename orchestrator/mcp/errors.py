"""The errors of tools: a code, as everywhere, a message, and what to do now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

ADVICE: Mapping[str, str] = {
    "not_found": "Check the id. list_executions lists executions; those that ended long ago are deleted.",
    "unknown_workflow": "list_workflows lists the registered names; or pass a document.",
    "unknown_tool": "Call a tool that this server lists.",
    "invalid_request": "Correct the arguments, and call the tool again.",
    "invalid_spec": "Correct the problems. validate_workflow checks a document and starts nothing.",
    "start_rejected": "Correct the inputs. list_workflows with the name shows which inputs it takes.",
    "rejected": "Nothing has changed. get_execution shows the status that does not allow it.",
    "bad_query": "Leave `after` out, and list from the beginning.",
    "too_large": "Pass a smaller value, or a reference to a place from which a step can load it.",
    "payload_missing": "The value has expired. Only the rest of the execution can be read.",
    "busy": "Nothing was started. Try again in a minute, with the same idempotency_key.",
    "no_reply": "The request is kept, and handled as soon as a coordinator runs. Do not repeat a signal."
    " Repeat a start with its idempotency_key only. `orchestrator doctor` shows an operator what is wrong.",
    "request_lost": "Redis has lost the request. Read the execution, and then try again.",
    "unavailable": "Try again in some seconds. If it stays like this, an operator must look at Redis.",
    "forbidden_by_redis": "An operator must give the Redis user of this server the right (docs/security.md).",
    "read_only": "This server only reads. Ask the user to make the change.",
    "conflict": "Read the execution again, and then try again.",
    "error": "Correct the arguments, and call the tool again.",
    "internal": "This is a defect. The standard error of this server has its traceback.",
}
"""What to do after an error, by its code. It is written for a language model."""


class ToolError(Exception):
    """A call that cannot be served: a code for programs, and what is wrong. `more` are further members."""

    def __init__(
        self,
        code: str,
        message: str,
        problems: Iterable[Mapping[str, Any]] = (),
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.message = code, message
        self.problems, self.more = tuple(problems), dict(more or {})

    def as_dict(self) -> dict[str, Any]:
        problems = {"problems": list(self.problems)} if self.problems else {}
        return {
            "code": self.code,
            "message": self.message,
            "advice": ADVICE[self.code],
            **problems,
            **self.more,
        }
