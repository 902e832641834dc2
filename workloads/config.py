"""The `workload:` section of an experiment."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, TypeAdapter, model_validator

from .arrivals import AnyArrivals, AtOnce, Explicit
from .lengths import AnyLengths
from .strict import Count, Length, Rate, Seconds, Strict


class Factor(Strict):
    factor: Annotated[float, Field(ge=1, allow_inf_nan=False)]


def _limit_kind(value: Any) -> str:
    return "factor" if isinstance(value, dict | Factor) else "tokens"


AnyMaxTokens = Annotated[
    Annotated[Length, Tag("tokens")] | Annotated[Factor, Tag("factor")], Discriminator(_limit_kind),
]
"""What the client asks for: a number of tokens, or a factor over the true output length."""


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, int) else value


Priorities = Annotated[tuple[int, ...], Field(strict=False, min_length=1), BeforeValidator(_as_list)]
"""Smaller is more urgent; a list cycles over the requests."""

PromptAndOutput = Annotated[tuple[Length, Length], Field(strict=False)]


def _rows_kind(value: Any) -> str:
    return "path" if isinstance(value, str) else "table"


AnyRows = Annotated[
    Annotated[str, Tag("path")]
    | Annotated[tuple[PromptAndOutput, ...], Field(strict=False, min_length=1), Tag("table")],
    Discriminator(_rows_kind),
]
"""Joint lengths `[[prompt, output], ...]`, or the path of a CSV or JSONL file that has them."""


class Prefix(Strict):
    """`groups` shared prefixes of `tokens` tokens, part of the prompt; requests take them in turn or at random."""

    tokens: Length
    groups: Count = 1
    order: Literal["in_order", "random"] = "in_order"


MOST = 5_000_000
"""Requests that a synthetic workload may have: they are held in memory."""


class SyntheticConfig(Strict):
    """Requests made up from rules. Lengths come from `prompt` and `output`, or jointly from `rows`.

    `count` may be left out where `rows` or explicit arrivals give it. Seeded streams are independent of each other.
    """

    kind: Literal["synthetic"]
    count: Count | None = None
    prompt: AnyLengths | None = None
    output: AnyLengths | None = None
    rows: AnyRows | None = None
    rows_order: Literal["in_order", "random"] = "in_order"
    arrivals: AnyArrivals = AtOnce()
    prefix: Prefix | None = None
    max_tokens: AnyMaxTokens | None = None
    priority: Priorities = (0,)
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _lengths_are_given_once(self) -> "SyntheticConfig":
        if self.rows is None and (self.prompt is None or self.output is None):
            missing = "prompt" if self.prompt is None else "output"
            raise ValueError(f"'{missing}' is missing: give 'prompt' and 'output', or 'rows' for both")
        if self.rows is not None and (self.prompt is not None or self.output is not None):
            raise ValueError("'rows' gives prompt and output together: leave out 'prompt' and 'output'")
        return self

    @model_validator(mode="after")
    def _count_is_known(self) -> "SyntheticConfig":
        if self.count is None and self.rows is None and not isinstance(self.arrivals, Explicit):
            raise ValueError("'count' is missing: how many requests?")
        if self.count is not None and self.count > MOST:
            raise ValueError(f"'count' is {self.count:,}, and {MOST:,} requests are the most that are made up at once")
        if isinstance(self.arrivals, Explicit) and self.count not in (None, len(self.arrivals.explicit)):
            raise ValueError(f"'arrivals.explicit' has {len(self.arrivals.explicit)} times, 'count' is {self.count}")
        return self


FormatName = Literal[
    "auto", "azure", "burstgpt", "mooncake", "ragpulse", "run", "servegen", "vidur", "plain",
]


def _rate(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(r"x(?=.*[1-9])\d+(\.\d+)?", value):
        raise ValueError(f"{value!r} is no rate: write x2 (twice as fast) or a number of requests per second")
    return value


def _rate_kind(value: Any) -> str:
    return "speed" if isinstance(value, str) else "per_second"


AnyRate = Annotated[
    Annotated[str, Tag("speed")] | Annotated[Rate, Tag("per_second")], Discriminator(_rate_kind),
    BeforeValidator(_rate),
]
"""`xN` divides every time by N; a number is the mean rate in requests per second to stretch the trace to."""

Window = Annotated[tuple[Seconds, Seconds], Field(strict=False)]


class TraceConfig(Strict):
    """Requests read from a file. Applied in this order: `window`, `limit`, `rate` (or `arrivals`), then the lengths.

    window        seconds `[from, to)` on the file's own clock (a file of dates counts from its first row); `from`
                  becomes 0
    limit         the first so many requests
    arrivals      replaces the file's times, as a file without them may need
    scale_prompt  and scale_output: factors, rounded up to at least one token; then `max_prompt` cuts longer prompts
    zero_output   a request without output is dropped, or generates one token
    seed          for formats and arrivals that are sampled
    """

    kind: Literal["trace"]
    path: Annotated[str, Field(min_length=1)]
    format: FormatName = "auto"
    window: Window | None = None
    limit: Count | None = None
    rate: AnyRate | None = None
    arrivals: AnyArrivals | None = None
    scale_prompt: Rate = 1.0
    scale_output: Rate = 1.0
    max_prompt: Length | None = None
    max_tokens: AnyMaxTokens | None = None
    priority: Priorities | None = None
    zero_output: Literal["drop", "one"] = "drop"
    seed: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _options_agree(self) -> "TraceConfig":
        if self.window is not None and self.window[0] >= self.window[1]:
            raise ValueError(f"'window' {list(self.window)} is empty: write [from, to] in seconds")
        if self.rate is not None and self.arrivals is not None:
            raise ValueError("'rate' scales the file's times, 'arrivals' replaces them: give one of the two")
        if isinstance(self.arrivals, Explicit) and self.limit not in (None, len(self.arrivals.explicit)):
            raise ValueError(f"'arrivals.explicit' has {len(self.arrivals.explicit)} times, 'limit' is {self.limit}")
        return self


WorkloadConfig = Annotated[SyntheticConfig | TraceConfig, Field(discriminator="kind")]
"""What the `workload:` section may hold."""


def load_config(section: Any) -> SyntheticConfig | TraceConfig:
    """Check a `workload:` section, times in seconds. Raises pydantic's ValidationError (a ValueError)."""
    adapter: TypeAdapter[SyntheticConfig | TraceConfig] = TypeAdapter(WorkloadConfig)
    return adapter.validate_python(section)
