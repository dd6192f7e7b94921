"""What an executor is given, and what of it must not come back.

    hidden                              in errors, logs and notes    in outputs
    secrets it was given                yes                          yes
    variables that are called like one  yes                          yes, also if its source reads none:
                                                                     an executor may read the environment
    other variables that it reads       yes                          no: many are addresses and names
    what stands under keys that are     yes                          no: records keep values, steps need them

The work-horse of every step imports this: nothing heavy may be needed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator.application.redaction.by_key import collect_secrets, is_secret_key
from orchestrator.application.redaction.by_value import REDACT_NOTHING, ValueRedactor
from orchestrator.application.values.secret_refs import ReadSecret, fill_secrets
from orchestrator.invocation.source_config import build_configuration, read_variables, readable_variables


class CallArguments(NamedTuple):
    """Its inputs and its configuration, complete, and which values must not come back: those that are found
    before it is called, for it may change what it is given."""

    inputs: dict[str, Any]
    configuration: dict[str, Any]
    text_redactor: ValueRedactor
    """Hides from what it says."""
    outputs: ValueRedactor
    """Hides from what it returns."""


def resolve_arguments(
    inputs: dict[str, Any],
    source: Mapping[str, Any] | None,
    environment: Mapping[str, str],
    read: ReadSecret,
    *,
    secrets: Iterable[Sequence[str | int]] = (),
    redact: Sequence[str] = (),
) -> CallArguments:
    """What a job means on this worker; each secret is read once."""
    found: dict[str, str] = {}

    def read_once(name: str) -> str:
        if name not in found:
            found[name] = read(name)
        return found[name]

    variables = read_variables(source, environment)
    complete = fill_secrets(inputs, secrets, read_once)
    configuration = build_configuration(source, variables, read_once)
    values = {name: value for of in variables.values() for name, value in of.items() if value is not None}
    named = collect_secrets([complete, configuration], redact)
    private = [
        value for name, value in readable_variables(environment).items() if is_secret_key(name, redact)
    ]
    not_returned = [*found.values(), *private]
    not_said = [*not_returned, *values.values(), *named]
    return CallArguments(
        complete,
        configuration,
        ValueRedactor(not_said) if not_said else REDACT_NOTHING,
        ValueRedactor(not_returned) if not_returned else REDACT_NOTHING,
    )
