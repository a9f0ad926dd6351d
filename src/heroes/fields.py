"""What sections of settings are made of: a frozen section, and the kinds of numbers that keys hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Range = tuple[Positive, Positive]


class Section(BaseModel):
    """A section of the configuration: every key has a type, a default and a docstring."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _none_is_a_word(cls, tree: Any) -> Any:
        """TOML has no null: the word "none" unsets a key that may be unset. TOML's lists are our pairs."""
        if not isinstance(tree, Mapping):
            return tree
        optional = {
            name for name, field in cls.model_fields.items() if type(None) in get_args(field.annotation)
        }
        plain = {key: None if value == "none" and key in optional else value for key, value in tree.items()}
        return {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
