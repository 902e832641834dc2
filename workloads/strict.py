"""Building blocks of the configuration models: strict, frozen, and no key that is not known."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

MOST_TOKENS = 10**9
"""No length beyond this is taken for one: it is a wrong column or a wrong unit."""

Count = Annotated[int, Field(gt=0)]
Length = Annotated[int, Field(gt=0, le=MOST_TOKENS)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Variation = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A coefficient of variation: standard deviation over mean."""
LengthRange = Annotated[tuple[Length, Length], Field(strict=False)]
"""`[lowest, highest]`, both included."""


class Strict(BaseModel):
    """Base of every model of a workload's configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def single_key(value: Any, names: Mapping[str, type[BaseModel]]) -> str | None:
    """Which of `names` a mapping (or a ready model) is about; None where it is none of them."""
    if isinstance(value, Mapping):
        return next((key for key in value if key in names), None)
    return next((key for key, model in names.items() if type(value) is model), None)


def ordered(pair: tuple[int, int]) -> tuple[int, int]:
    """Raises ValueError for a range that is upside down."""
    if pair[0] > pair[1]:
        raise ValueError(f"the range [{pair[0]}, {pair[1]}] is upside down: write [lowest, highest]")
    return pair
