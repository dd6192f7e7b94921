"""The arguments of an executor, and which of their values are redacted.

    value                                 in errors, logs and notes    in outputs
    a secret that the executor is given   redacted                     redacted
    a readable variable whose name looks  redacted                     redacted, also if its source does not
    like that of a secret                                              read it: an executor may read the
                                                                       environment
    another variable that its source      redacted                     kept: many are addresses and names
    reads
    a text under a key that looks like    redacted                     kept: records store values, and later
    that of a secret                                                   steps need them

The work-horse of every step imports this: it must load nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator.application.redaction.by_key import collect_secrets, is_secret_key
from orchestrator.application.redaction.by_value import REDACT_NOTHING, ValueRedactor
from orchestrator.application.values.secret_refs import ReadSecret, fill_secrets
from orchestrator.invocation.source_config import (
    ENV_ALLOWLIST_VARIABLE,
    build_configuration,
    read_variables,
    readable_variables,
)


class CallArguments(NamedTuple):
    """The inputs and the configuration, with secrets filled in, and the redactors of their values.

    The values are collected before the call, because the executor may change its arguments.
    """

    inputs: dict[str, Any]
    configuration: dict[str, Any]
    text_redactor: ValueRedactor
    """Redacts errors, logs and notes."""
    output_redactor: ValueRedactor
    """Redacts the output."""


def resolve_arguments(
    inputs: dict[str, Any],
    source: Mapping[str, Any] | None,
    environment: Mapping[str, str],
    read: ReadSecret,
    *,
    secrets: Iterable[Sequence[str | int]] = (),
    redact: Sequence[str] = (),
) -> CallArguments:
    """Fill in the secrets and variables of a job on this worker. Each secret is read once."""
    secret_values: dict[str, str] = {}

    def read_once(name: str) -> str:
        if name not in secret_values:
            secret_values[name] = read(name)
        return secret_values[name]

    configuration: dict[str, Any] = {}
    not_in_text: list[str] = []
    filled = fill_secrets(inputs, secrets, read_once) if secrets else dict(inputs)
    if source is not None:
        variables = read_variables(source, environment)
        configuration = build_configuration(source, variables, read_once)
        not_in_text += [value for of in variables.values() for value in of.values() if value is not None]
        not_in_text += collect_secrets(configuration, redact)
    not_in_text += collect_secrets(filled, redact)
    not_in_output = list(secret_values.values())
    if ENV_ALLOWLIST_VARIABLE in environment:
        readable = readable_variables(environment)
        not_in_output += [value for name, value in readable.items() if is_secret_key(name, redact)]
    not_in_text += not_in_output
    return CallArguments(
        filled,
        configuration,
        ValueRedactor(not_in_text) if not_in_text else REDACT_NOTHING,
        ValueRedactor(not_in_output) if not_in_output else REDACT_NOTHING,
    )
