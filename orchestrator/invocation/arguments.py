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

from orchestrator.application.redaction.by_key import is_secret, secrets_in
from orchestrator.application.redaction.by_value import NOTHING, Hiding
from orchestrator.application.values.secret_refs import Read, filled
from orchestrator.invocation.source_config import configure, readable, variables_of


class Given(NamedTuple):
    """Its inputs and its configuration, complete, and which values must not come back: those that are found
    before it is called, for it may change what it is given."""

    inputs: dict[str, Any]
    configuration: dict[str, Any]
    texts: Hiding
    """Hides from what it says."""
    outputs: Hiding
    """Hides from what it returns."""


def give(
    inputs: dict[str, Any],
    source: Mapping[str, Any] | None,
    environment: Mapping[str, str],
    read: Read,
    *,
    secrets: Iterable[Sequence[str | int]] = (),
    redact: Sequence[str] = (),
) -> Given:
    """What a job means on this worker; each secret is read once."""
    found: dict[str, str] = {}

    def read_once(name: str) -> str:
        if name not in found:
            found[name] = read(name)
        return found[name]

    variables = variables_of(source, environment)
    complete = filled(inputs, secrets, read_once)
    configuration = configure(source, variables, read_once)
    values = {name: value for of in variables.values() for name, value in of.items() if value is not None}
    named = secrets_in([complete, configuration], redact)
    private = [value for name, value in readable(environment).items() if is_secret(name, redact)]
    not_returned = [*found.values(), *private]
    not_said = [*not_returned, *values.values(), *named]
    return Given(
        complete,
        configuration,
        Hiding(not_said) if not_said else NOTHING,
        Hiding(not_returned) if not_returned else NOTHING,
    )
