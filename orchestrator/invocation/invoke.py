"""Call one executor. Every worker uses invoke(), so that all of them check the same things in the same order.

    find the executor -> check its parameters -> load its inputs -> fill in secrets and configuration
        -> call it -> encode its output

The result is the output as JSON text, or a failure of one of these kinds:

    exception         there is no such executor (see `Call.declines`), it lacks a parameter that its step
                      needs, or it raised
    payload_missing   a large input is missing (from load_inputs)
    expression        the configuration of its source cannot be evaluated, or its inputs are too large
    refused           the worker lacks a secret, or does not allow a variable; not retried
    timeout           the call took too long
    bad_output        the output is not JSON, or too large

The work-horse of every step imports this: it must load nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from orchestrator.application.errors import (
    BadConfiguration,
    ExecutorNotFound,
    OrchestratorError,
    RejectedByWorker,
)
from orchestrator.application.records.events import make_failure
from orchestrator.application.redaction.by_value import ValueRedactor
from orchestrator.invocation.arguments import CallArguments, resolve_arguments
from orchestrator.invocation.coroutines import await_result
from orchestrator.invocation.exceptions import RedactText, describe_exception
from orchestrator.invocation.output import encode_output
from orchestrator.invocation.parameters import (
    Heartbeat,
    check_requested_parameters,
    evaluate,
    find_requested_parameters,
)
from orchestrator.invocation.secret_store import read_secret
from orchestrator.settings import Settings

ExecutorFunctions = Callable[..., Any] | Mapping[str, Callable[..., Any]]
"""One function for all names, `(fn, inputs) -> dict`, or one for each: `{fn: (inputs) -> dict}`. Each may
request more parameters: `parameters.py`."""

Failure = dict[str, Any]
Result = tuple[str | None, Failure | None]
"""The output as JSON text, or the failure."""

_NO_CONTEXT: AbstractContextManager[Any] = nullcontext()


class Call:
    """One call of an executor. A worker subclasses it to connect the call with its surroundings.

    The subclass sets the attributes without a default.
    """

    step_id: str
    fn: str
    source: Mapping[str, Any] | None
    heartbeat_s: float | None
    secrets: Iterable[Sequence[str | int]]
    redact: Sequence[str]
    max_output_bytes: int
    settings: Settings
    timeout_errors: tuple[type[BaseException], ...] = ()
    """Exceptions that mean that the call took too long."""
    declines: bool = False
    """Whether invoke() raises ExecutorNotFound, because another worker may have the executor. Else a missing
    executor is a failure."""

    # ---- before the call

    def find_executor(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The executor, and the arguments that it takes before its inputs."""
        raise NotImplementedError

    def load_inputs(self) -> tuple[dict[str, Any], Failure | None]:
        """The inputs with their large values, or the failure."""
        raise NotImplementedError

    def read_secret(self, name: str) -> str:
        return read_secret(name, self.settings.environment)

    # ---- parameters that an executor may request

    def clock(self) -> float:
        """The time of heartbeats."""
        raise NotImplementedError

    def build_context(self) -> dict[str, Any]:
        raise NotImplementedError

    def log(self, text: str) -> None:
        """Log a text of the executor, and add it to the step log."""
        raise NotImplementedError

    def log_heartbeat(self, text: str) -> None:
        raise NotImplementedError

    def keep_note(self, text: str) -> None:
        """Add the note of a heartbeat to the step log."""
        raise NotImplementedError

    def is_cancelled(self) -> bool:
        return False

    # ---- around the call

    def watch(self, heartbeat: Heartbeat | None) -> AbstractContextManager[Any] | None:
        """Watches the heartbeats while the executor runs. None if there is nothing to watch."""
        return None

    def scrub_logs(self, redactor: ValueRedactor) -> AbstractContextManager[Any] | None:
        """Redacts everything that is printed or logged while the executor runs. None if there is nothing to
        redact."""
        return None

    def await_result(self, returned: Any) -> Any:
        return await_result(returned)

    def is_fatal(self, error: BaseException) -> bool:
        """Whether an exception ends the worker, instead of being the result of the call."""
        raise NotImplementedError

    def explain_memory_error(self) -> str:
        """What to do about a MemoryError: it is added to the message."""
        return "let the step use less memory"

    def after_call(self) -> None:
        """Runs after the executor, also if it raised, and before its output is encoded."""

    def offload(self, text: str) -> Result:
        """Store the large parts of an output that exceeds `max_output_bytes`."""
        raise NotImplementedError


def invoke(call: Call) -> Result:
    """Call the executor. Returns its output as JSON text, or the failure."""
    try:
        executor, leading = call.find_executor()
        requested = find_requested_parameters(executor, len(leading) + 1)
        if call.heartbeat_s is not None or call.source is not None:
            check_requested_parameters(requested, call.step_id, call.fn, call.heartbeat_s, call.source)
        inputs, failure = call.load_inputs()
        if failure is not None:
            return None, failure
        arguments = resolve_arguments(
            inputs,
            call.source,
            call.settings.environment,
            call.read_secret,
            secrets=call.secrets,
            redact=call.redact,
        )
    except BadConfiguration as error:
        return None, make_failure("expression", str(error))
    except RejectedByWorker as error:
        return None, make_failure("refused", str(error), type(error).__name__)
    except OrchestratorError as error:
        if call.declines and isinstance(error, ExecutorNotFound):
            raise
        return None, make_failure("exception", str(error), type(error).__name__)
    except Exception as error:
        return None, _describe(call, error)
    redact = arguments.text_redactor.redact_text
    extras: dict[str, Any] = {}
    if requested:
        offered = _offer(call, arguments)
        extras = {name: offered[name] for name in requested}
    try:
        watching = call.watch(extras.get("heartbeat"))
        scrubbing = call.scrub_logs(arguments.text_redactor)
        if watching is None and scrubbing is None:  # most calls: two empty contexts would cost six calls
            output = call.await_result(executor(*leading, arguments.inputs, **extras))
        else:
            with watching or _NO_CONTEXT, scrubbing or _NO_CONTEXT:
                output = call.await_result(executor(*leading, arguments.inputs, **extras))
    except call.timeout_errors as error:
        return None, make_failure("timeout", str(error))
    except BaseException as error:  # sys.exit() and the like end a step, not its worker
        if call.is_fatal(error):
            raise
        return None, _describe(call, error, redact)
    finally:
        call.after_call()
    try:
        return encode_output(
            output, call.max_output_bytes, redact, arguments.output_redactor, call.offload, call.is_fatal
        )
    except MemoryError as error:
        return None, _describe(call, error, redact)


def _describe(call: Call, error: BaseException, redact: RedactText = str) -> Failure:
    """The failure for an exception. By type(error): an exception may raise when its __class__ is read."""
    hint = call.explain_memory_error() if issubclass(type(error), MemoryError) else ""
    return describe_exception(error, redact, call.settings.non_retryable, hint)


def _offer(call: Call, arguments: CallArguments) -> dict[str, Any]:
    """Every parameter that an executor may request, for a call that starts now."""
    redact = arguments.text_redactor.redact_text
    return {
        "heartbeat": Heartbeat(
            call.clock,
            lambda text: call.log_heartbeat(redact(text)),
            lambda text: call.keep_note(redact(text)),
        ),
        "configuration": arguments.configuration,
        "context": call.build_context(),
        "log": lambda text: call.log(redact(str(text))),
        "cancelled": call.is_cancelled,
        "evaluate": evaluate,
    }
