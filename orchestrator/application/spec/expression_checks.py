"""Checks the expressions of one workflow, wherever they stand: their form, and what their paths read.

What they read is checked by References, for new documents only; without it, only the form is checked.
"""

from __future__ import annotations

from typing import Any

from orchestrator.application.expressions.evaluation import SecretPolicy, check, check_condition
from orchestrator.application.spec.references import References, Scope
from orchestrator.application.spec.report import Report
from orchestrator.application.values.paths import Path

EXAMPLE = 'such as {"var": "steps.a.output.x"}'


class ExpressionChecks:
    def __init__(self, report: Report, references: References | None = None) -> None:
        self._report, self._references = report, references

    def check_value(self, value: Any, path: Path, scope: Scope, secrets: SecretPolicy = "nowhere") -> None:
        """Check a value that may contain expressions."""
        if check(value, "", secrets):  # the paths are rendered only if there is a problem to report
            self._report.extend(check(value, self._report.full_path(path), secrets))
        self._check_reads(value, path, scope)

    def check_values(self, values: Any, path: Path, scope: Scope, secrets: SecretPolicy = "nowhere") -> None:
        """Check the values of a mapping such as `input`.

        The mapping itself is not an expression: {max: 3} is an input named max.
        """
        for key, value in values.items() if isinstance(values, dict) else ():
            if isinstance(value, dict | list):
                self.check_value(value, (*path, key), scope, secrets)

    def check_condition(self, value: Any, path: Path, scope: Scope) -> None:
        """Check a value that must be an expression, a boolean, a number or null."""
        if check_condition(value, ""):
            self._report.extend(check_condition(value, self._report.full_path(path)))
        self._check_reads(value, path, scope)

    def check_rule(self, rule: dict[str, Any], path: Path, scope: Scope) -> None:
        """Check a mapping that must be an expression."""
        if len(rule) == 1:
            self.check_condition(rule, path, scope)
        else:
            message = "must be an expression: a mapping with one operator"
            self._report.add(path, "bad_type", message, EXAMPLE)

    def check_paths(self, paths: Any, path: Path, scope: Scope) -> None:
        """Check a list of paths such as `required`."""
        if self._references is None or not isinstance(paths, list):
            return
        for n, text in enumerate(paths):
            if isinstance(text, str):
                self._references.check_path(text, (*path, n), scope)

    def _check_reads(self, value: Any, path: Path, scope: Scope) -> None:
        if self._references is not None:
            self._references.check(value, path, scope)
