"""When requests arrive: the rules an experiment can give, each a model that draws times in seconds."""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator

from .strict import Count, Rate, Seconds, Strict, Variation, single_key


class Arrivals(Strict):
    """A rule for arrivals. `about` is its line in the catalog."""

    about: ClassVar[str]

    @abstractmethod
    def times(self, count: int, random: np.random.Generator) -> list[float]:
        """`count` times in seconds from the start of the run, none before the one before it.

        Raises ValueError where the rule has another number of arrivals than `count`.
        """


class AtOnce(Arrivals):
    about: ClassVar[str] = "all at time 0"
    at_once: Literal[True] = True

    def times(self, count: int, random: np.random.Generator) -> list[float]:
        return [0.0] * count


class Evenly(Arrivals):
    about: ClassVar[str] = "a fixed gap of 1 / rate, the first at 0"
    uniform: Rate

    def times(self, count: int, random: np.random.Generator) -> list[float]:
        return [index / self.uniform for index in range(count)]


class Poisson(Arrivals):
    """The first arrival comes after the first gap, as in a process that was already under way."""

    about: ClassVar[str] = "a Poisson process of that rate (requests per second)"
    poisson: Rate

    def times(self, count: int, random: np.random.Generator) -> list[float]:
        return _after(random.standard_exponential(count) / self.poisson)


class RateAndVariation(Strict):
    rate: Rate
    cv: Variation


class GammaGaps(Arrivals):
    """Shape `1 / cv^2`, mean `1 / rate`; cv 1 is a Poisson process, above it bursts. The first comes after a gap."""

    about: ClassVar[str] = "gamma gaps of a rate and a coefficient of variation"
    gamma: RateAndVariation

    def times(self, count: int, random: np.random.Generator) -> list[float]:
        square = self.gamma.cv**2
        return _after(random.standard_gamma(1 / square, size=count) * (square / self.gamma.rate))


class Explicit(Arrivals):
    about: ClassVar[str] = "a list of times in seconds, one per request"
    explicit: Annotated[tuple[Seconds, ...], Field(strict=False, min_length=1)]

    @field_validator("explicit")
    @classmethod
    def _in_order(cls, times: tuple[float, ...]) -> tuple[float, ...]:
        for before, after in zip(times, times[1:], strict=False):
            if after < before:
                raise ValueError(f"times must not go back, but {after} follows {before}")
        return times

    def times(self, count: int, random: np.random.Generator) -> list[float]:
        if count != len(self.explicit):
            raise ValueError(f"arrivals.explicit has {len(self.explicit)} times for {count} requests")
        return list(self.explicit)


class ClosedLoop(Arrivals):
    """`closed_loop` requests in flight: at 0 that many arrive, each later one `think_time` seconds after an end."""

    about: ClassVar[str] = "N clients: the next request comes when one ends (plus think_time seconds)"
    closed_loop: Count
    think_time: Seconds = 0.0

    def times(self, count: int, random: np.random.Generator) -> list[float]:
        return [0.0] * count


KINDS: dict[str, type[Arrivals]] = {
    "at_once": AtOnce, "poisson": Poisson, "gamma": GammaGaps, "uniform": Evenly, "explicit": Explicit,
    "closed_loop": ClosedLoop,
}


def _kind(value: Any) -> str | None:
    return single_key(value, KINDS)


def _spelled_out(value: Any) -> Any:
    return {"at_once": True} if value == "at_once" else value


AnyArrivals = Annotated[
    Annotated[AtOnce, Tag("at_once")] | Annotated[Poisson, Tag("poisson")] | Annotated[GammaGaps, Tag("gamma")]
    | Annotated[Evenly, Tag("uniform")] | Annotated[Explicit, Tag("explicit")]
    | Annotated[ClosedLoop, Tag("closed_loop")],
    Discriminator(
        _kind, custom_error_type="arrivals",
        custom_error_message=f"arrivals are one of {', '.join(KINDS)}, such as at_once or {{poisson: 2.5}}",
    ),
    BeforeValidator(_spelled_out),
]
"""Arrivals as an experiment gives them."""


def _after(gaps: np.ndarray) -> list[float]:
    return [float(time) for time in np.cumsum(gaps)]
