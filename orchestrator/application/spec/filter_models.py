"""The model of `filters`: the conditions of a step, in groups."""

from __future__ import annotations

from typing import Any, Self

from pydantic import ConfigDict, Field, model_validator

from orchestrator.application.spec import field_types as f
from orchestrator.application.spec.part_models import SpecModel, invalid_error, one_of_two_keys


class FilterModel(SpecModel):
    """A condition, or a group of them: {operator: AND, filters: [...]}."""

    noun = "a filter"
    model_config = ConfigDict(json_schema_extra=one_of_two_keys("expression", "operator", "filters", "value"))

    expression: f.Condition = Field(None, description="Must be true, or equal to value if that is present.")
    value: f.Expression = Field(None, description="The value that the expression must equal.")
    operator: f.Operator = Field("AND", description="AND: all filters must be true; OR: at least one.")
    filters: list[FilterModel] | None = Field(None, description="Conditions, and nested groups.")

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        present = self.model_fields_set
        if self.filters is None and self.expression is None:
            raise invalid_error("a filter needs an expression, or an operator with filters")
        if self.filters is not None and not present.isdisjoint(("expression", "value")):
            raise invalid_error("has both filters and an expression; keep one")
        if self.filters is None and "operator" in present:
            raise invalid_error("has an operator, but no filters to combine")
        return self

    def to_spec(self) -> Any:
        """Return the expression that is true when the step may run."""
        if self.filters is None:
            has_value = "value" in self.model_fields_set
            return {"==": [self.expression, self.value]} if has_value else self.expression
        if not self.filters:
            return self.operator == "AND"
        return {self.operator.lower(): [part.to_spec() for part in self.filters]}
