"""The model of `wait`: the signals that a step waits for."""

from __future__ import annotations

from typing import Self

from pydantic import ConfigDict, Field, model_validator

from orchestrator.application.spec import field_types as f
from orchestrator.application.spec.model import OnTimeout, WaitSpec
from orchestrator.application.spec.part_models import SpecModel, invalid_error, one_of_two_keys
from orchestrator.application.values.durations import parse_ms


class WaitEventModel(SpecModel):
    """One of the events that end a wait: a signal, or a timeout."""

    noun = "an event to wait for"
    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    signal: f.Identifier | None = Field(None, description="The name of the signal.")
    timeout: f.Duration | None = Field(None, description="After how long the wait ends without a signal.")

    @model_validator(mode="after")
    def _check_event(self) -> Self:
        if (self.signal is None) == (self.timeout is None):
            raise invalid_error("must be either {signal: ...} or {timeout: ...}")
        if self.signal == "timeout":
            raise invalid_error(
                "a signal cannot be named timeout here: the output would not tell it from a timeout"
            )
        return self


class WaitModel(SpecModel):
    """Waits for a signal, or for the first of several events. No job runs meanwhile."""

    noun = "wait"
    model_config = ConfigDict(json_schema_extra=one_of_two_keys("signal", "any", "any", "timeout"))

    signal: f.Identifier | None = Field(
        None, description="The name of the signal; its payload is the output."
    )
    timeout: f.TimeoutOrNone | None = Field(
        None, description="How long it waits at most; without a limit if absent."
    )
    on_timeout: OnTimeout = Field("fail", description="Whether a timeout is a failure, or an empty output.")
    any: list[WaitEventModel] | None = Field(
        None,
        description="Several events; the first one wins.",
        json_schema_extra={"contains": {"required": ["signal"]}},
    )

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if (self.signal is None) == (self.any is None):
            raise invalid_error("needs either a signal or any: a list of events")
        if self.any is not None:
            if not self.model_fields_set <= {"signal", "any"}:
                raise invalid_error("with any, a timeout is one of its events: [{signal: a}, {timeout: 24h}]")
            names = [event.signal or "timeout" for event in self.any]
            if set(names) <= {"timeout"}:
                raise invalid_error("any needs at least one signal")
            if repeated := next((name for name in names if names.count(name) > 1), None):
                raise invalid_error(f"any has {repeated} twice")
        return self

    def to_spec(self) -> WaitSpec:
        if self.any is None:
            timeout_s = None if self.timeout is None else f.timeout_seconds(self.timeout)
            timeout_ms = None if timeout_s is None else parse_ms(self.timeout)
            return WaitSpec((self.signal or "",), timeout_ms, self.on_timeout)
        signals = tuple(event.signal for event in self.any if event.signal is not None)
        timeout_ms = next((parse_ms(event.timeout) for event in self.any if event.timeout is not None), None)
        return WaitSpec(signals, timeout_ms, "continue", is_any=True)
