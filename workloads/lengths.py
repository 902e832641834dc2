"""How long prompts and outputs are: the rules an experiment can give, each a model that draws lengths in tokens."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from .strict import Count, Length, LengthRange, Rate, Strict, Variation, ordered, single_key


class Lengths(Strict):
    """A rule for lengths. `about` is its line in the catalog."""

    about: ClassVar[str]

    @abstractmethod
    def draw(self, count: int, random: np.random.Generator) -> list[int]:
        """`count` lengths in tokens, each at least 1, in the order of the requests."""


class Fixed(Lengths):
    about: ClassVar[str] = "every request the same"
    fixed: Length

    def draw(self, count: int, random: np.random.Generator) -> list[int]:
        return [self.fixed] * count


class Uniform(Lengths):
    about: ClassVar[str] = "at random between the two, both included"
    uniform: Annotated[LengthRange, AfterValidator(ordered)]

    def draw(self, count: int, random: np.random.Generator) -> list[int]:
        low, high = self.uniform
        return _integers(random.integers(low, high, size=count, endpoint=True))


class Spread(Lengths):
    """`distinct` lengths evenly from low to high (default: as many as requests), not random.

    Request i has length i modulo `distinct`: the lengths cycle, so any run of `distinct` requests has one of each.
    With fewer requests than `distinct`, as many lengths are spread over the same range; one alone takes the mean.
    """

    about: ClassVar[str] = "D distinct lengths evenly from low to high, in turn"
    spread: Annotated[LengthRange, AfterValidator(ordered)]
    distinct: Count | None = None

    @model_validator(mode="after")
    def _there_are_that_many(self) -> "Spread":
        low, high = self.spread
        if self.distinct is not None and self.distinct > high - low + 1:
            raise ValueError(f"{self.distinct} distinct lengths do not fit between {low} and {high}")
        return self

    def draw(self, count: int, random: np.random.Generator) -> list[int]:
        lengths = self._evenly(min(count, self.distinct or count))
        return [lengths[index % len(lengths)] for index in range(count)]

    def _evenly(self, distinct: int) -> list[int]:
        low, high = self.spread
        if distinct == 1:
            return [(low + high + 1) // 2]
        steps = distinct - 1
        return [low + (2 * (high - low) * index + steps) // (2 * steps) for index in range(distinct)]  # half up


class _Clipped(Strict):
    """Mean and variation of a distribution, and where it is clipped (which moves the mean of what is drawn)."""

    mean: Rate
    cv: Variation
    min: Length = 1
    max: Length | None = None

    @model_validator(mode="after")
    def _range(self) -> "_Clipped":
        if self.max is not None:
            ordered((self.min, self.max))
        return self

    def clip(self, lengths: np.ndarray) -> list[int]:
        return _integers(np.clip(lengths, self.min, self.max if self.max is not None else 10**9))


class Lognormal(Lengths):
    """`sigma^2 = ln(1 + cv^2)`, `mu = ln(mean) - sigma^2 / 2`."""

    about: ClassVar[str] = "lognormal with a mean and a coefficient of variation, clipped to min and max"
    lognormal: _Clipped

    def draw(self, count: int, random: np.random.Generator) -> list[int]:
        variance = np.log1p(self.lognormal.cv**2)
        middle = np.log(self.lognormal.mean) - variance / 2
        return self.lognormal.clip(np.exp(middle + np.sqrt(variance) * random.standard_normal(count)))


class Gamma(Lengths):
    """Shape `1 / cv^2`, scale `mean * cv^2`."""

    about: ClassVar[str] = "gamma with a mean and a coefficient of variation, clipped to min and max"
    gamma: _Clipped

    def draw(self, count: int, random: np.random.Generator) -> list[int]:
        square = self.gamma.cv**2
        return self.gamma.clip(random.standard_gamma(1 / square, size=count) * self.gamma.mean * square)


def _numbers(table: Any) -> Any:
    """JSON has no numbers as keys, so a table that was saved comes back with text."""
    return {_number(key): value for key, value in table.items()} if isinstance(table, Mapping) else table


def _number(key: Any) -> Any:
    try:
        return float(key) if not isinstance(key, bool) else key
    except (TypeError, ValueError):
        return key


class Quantiles(Lengths):
    """A table probability -> length; between its points the inverse distribution function is straight."""

    about: ClassVar[str] = "from a table of quantiles, straight between its points"
    quantiles: Annotated[dict[Annotated[float, Field(ge=0, le=1)], Length], BeforeValidator(_numbers)]

    @field_validator("quantiles")
    @classmethod
    def _is_a_distribution(cls, table: dict[float, int]) -> dict[float, int]:
        table = dict(sorted(table.items()))
        if 0 not in table or 1 not in table:
            raise ValueError("needs the quantiles 0 (the shortest) and 1 (the longest)")
        lengths = list(table.values())
        if lengths != sorted(lengths):
            raise ValueError(f"a higher quantile cannot be shorter: {table}")
        return table

    def draw(self, count: int, random: np.random.Generator) -> list[int]:
        return _integers(np.interp(random.random(count), list(self.quantiles), list(self.quantiles.values())))


KINDS: dict[str, type[Lengths]] = {
    "fixed": Fixed, "uniform": Uniform, "spread": Spread, "lognormal": Lognormal, "gamma": Gamma,
    "quantiles": Quantiles,
}


def _spelled_out(value: Any) -> Any:
    return {"fixed": value} if isinstance(value, int) and not isinstance(value, bool) else value


def _kind(value: Any) -> str | None:
    return single_key(value, KINDS)


AnyLengths = Annotated[
    Annotated[Fixed, Tag("fixed")] | Annotated[Uniform, Tag("uniform")] | Annotated[Spread, Tag("spread")]
    | Annotated[Lognormal, Tag("lognormal")] | Annotated[Gamma, Tag("gamma")]
    | Annotated[Quantiles, Tag("quantiles")],
    Discriminator(
        _kind, custom_error_type="lengths",
        custom_error_message=f"lengths are a whole number of tokens or one of {', '.join(KINDS)}, "
        "such as {fixed: 275} or {spread: [50, 500], distinct: 8}",
    ),
    BeforeValidator(_spelled_out),
]
"""Lengths as an experiment gives them; a plain number is `{fixed: number}`."""


def _integers(lengths: np.ndarray) -> list[int]:
    """To the nearest token, at least one."""
    return [int(length) for length in np.maximum(np.rint(lengths), 1)]
