"""What was raised, told in words that can be kept, whatever it does when it is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from orchestrator.invocation.exceptions import MAX_NAME_CHARS, describe_exception, format_message


class Nameless(type):
    @property
    def __name__(cls) -> NoReturn:  # type: ignore[override]
        raise LookupError("no name")


class Unnamed(Exception, metaclass=Nameless):
    pass


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Touchy(Exception):
    def __getattribute__(self, name: str) -> NoReturn:
        raise KeyboardInterrupt(name)


@pytest.mark.parametrize(
    ("raised", "name", "message"),
    [
        (lambda: Unnamed("what?"), "Unnamed", "what?"),
        (lambda: Leaving(), "Leaving", "Leaving"),
        (lambda: Touchy.__new__(Touchy), "Touchy", "Touchy"),
        (lambda: type("X" * 1_000, (Exception,), {})("short"), "X" * MAX_NAME_CHARS, "short"),
        (lambda: KeyboardInterrupt(), "KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_an_exception_is_a_failure_whatever_code_it_runs(
    raised: Callable[[], Any], name: str, message: str
) -> None:
    made = describe_exception(raised())

    assert (made["kind"], made["type"], made["message"]) == ("exception", name, message)


def test_no_name_is_longer_than_can_be_kept() -> None:
    base = type("NonRetryable" + "Y" * 1_000, (Exception,), {"__module__": "z" * 1_000})

    made = describe_exception(type("X", (base,), {})("short"))

    assert max(len(one) for one in (*made["types"], made["not_retried"])) == MAX_NAME_CHARS
    assert made["not_retried"].startswith("it is a NonRetryableY")


def test_secrets_are_hidden_in_names_too() -> None:
    error = type("Of_s3cret", (Exception,), {})()

    assert format_message(error, lambda text: text.replace("s3cret", "*")) == "Of_*"
