"""A tool: a function with the model of its arguments, and what it tells a client about itself.

    def get_step(system: System, args: StepArguments) -> JsonObject:
        \"\"\"Get one step.\"\"\"

    TOOLS = [Tool(get_step)]

The name of the function is the name of the tool, and its docstring is the description that a language model
reads.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_type_hints

from orchestrator.mcp.arguments import Arguments, JsonObject, make_schema
from orchestrator.mcp.system import System

Serve = Callable[[System, Any], JsonObject]


@dataclass(frozen=True)
class Tool:
    """A tool. `is_destructive` is true if it may end or undo work, and `is_idempotent` if a second call with
    the same arguments changes nothing."""

    serve: Serve
    changes: bool = False
    is_destructive: bool = False
    is_idempotent: bool = True

    @property
    def name(self) -> str:
        return self.serve.__name__

    @cached_property
    def description(self) -> str:
        return " ".join(inspect.cleandoc(self.serve.__doc__ or "").split())

    @cached_property
    def arguments(self) -> type[Arguments]:
        found: type[Arguments] = get_type_hints(self.serve)["args"]
        return found

    @cached_property
    def input_schema(self) -> JsonObject:
        return make_schema(self.arguments)
