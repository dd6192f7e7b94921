"""What a rehearsal raises: it is about the test, never about the workflow, whose failures are results.

WorkflowTestError           something was asked for that is not there, or a mock has nothing more to say
├── MockMissing          a step was to be executed, and there is neither an executor nor a mock for it
└── NoEnd                the workflow went on and on
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from orchestrator.application.errors import OrchestratorError


class WorkflowTestError(OrchestratorError):
    """The test asks for what cannot be."""


class MockMissing(WorkflowTestError):
    def __init__(self, step: str, fn: str) -> None:
        super().__init__(f"step {step} calls {fn!r}: no executor and no mock; play.mock({fn!r}, ...)")
        self.step, self.fn = step, fn


class CallLimitReached(WorkflowTestError):
    """The limit of calls was reached."""


def unknown_name_error(what: str, name: str, known: Iterable[str]) -> WorkflowTestError:
    """A name that means nothing here, and what was likely meant."""
    names = list(dict.fromkeys(known))
    close = get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return WorkflowTestError(f"{what} {name!r}; there is: {', '.join(names) or 'none'}{hint}")
