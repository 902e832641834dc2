"""A latency model that reads measured costs off a table: the cost of decode rows and of packed tokens, at knots."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...models.fields import Seconds
from .curve import Curve
from .decode_series import series
from .work import Work

Knots = Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1)]
Costs = Annotated[list[Seconds], Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DecodeTable(_Part):
    """Steps of decode rows only: `seconds` at `rows`, before the context; each KV entry read adds `context_token`."""

    rows: Knots
    seconds: Costs
    context_token: Seconds = 0.0

    @model_validator(mode="after")
    def _paired(self) -> "DecodeTable":
        check_knots("rows", self.rows, self.seconds)
        return self


class PrefillTable(_Part):
    """Steps with any prefill: `seconds` at `tokens`, which counts all tokens of the pass, decode rows' included.

    Added: `row` for each sequence of each forward, `context_token` for each KV entry read, and `attended_pair` for each
    query-key pair of the prefill rows.
    """

    tokens: Knots
    seconds: Costs
    row: Seconds = 0.0
    context_token: Seconds = 0.0
    attended_pair: Seconds = 0.0

    @model_validator(mode="after")
    def _paired(self) -> "PrefillTable":
        check_knots("tokens", self.tokens, self.seconds)
        return self


class HostPart(_Part):
    """What of a step's seconds is the host's: `step` and `row` for each sequence of each forward."""

    step: Seconds = 0.0
    row: Seconds = 0.0


class TableConfig(_Part):
    """All times in seconds (or texts with a unit). Tokens are those computed; `charge_padding` counts what an engine
    that pads its prefill computes in their place."""

    kind: Literal["table"] = "table"
    decode: DecodeTable
    prefill: PrefillTable
    host: HostPart = HostPart()
    charge_padding: bool = False

    def model(self) -> "Table":
        return Table(self)


@dataclass(frozen=True)
class Table:
    """Step cost off a table, linear between its knots; see `Curve` for what lies outside.

    A step of f forwards costs f times what its tokens, spread evenly over them, cost. The drafts of a decode row are
    tokens beside its own.
    """

    config: TableConfig

    def seconds(self, work: Work) -> float:
        return self._fixed(work) + self._context_second(work) * work.context_tokens

    def host_seconds(self, work: Work) -> float:
        host = self.config.host
        return min(host.step + host.row * work.rows, self._fixed(work)) if work.rows else 0.0

    def decode_series(self, work: Work, steps: int) -> NDArray[np.float64]:
        return series(self._fixed(work), self._context_second(work), work, steps)

    def describe(self) -> dict[str, Any]:
        return self.config.model_dump()

    def _context_second(self, work: Work) -> float:
        return self.config.prefill.context_token if work.prefill_seqs else self.config.decode.context_token

    def _fixed(self, work: Work) -> float:
        """All but the context."""
        if not work.rows:
            return 0.0
        forwards, prefill = max(work.forwards, 1), self.config.prefill
        tokens = work.decode_seqs + work.draft_tokens
        if not work.prefill_seqs:
            return forwards * self._decode(tokens / forwards)
        tokens += work.padded_tokens if self.config.charge_padding else work.prefill_tokens
        packed = forwards * self._prefill(tokens / forwards)
        return packed + prefill.row * work.rows + prefill.attended_pair * work.prefill_attended

    @cached_property
    def _decode(self) -> Curve:
        return Curve(tuple(self.config.decode.rows), tuple(self.config.decode.seconds))

    @cached_property
    def _prefill(self) -> Curve:
        return Curve(tuple(self.config.prefill.tokens), tuple(self.config.prefill.seconds))


def check_knots(name: str, knots: list[int], costs: list[float]) -> None:
    """Raises ValueError where knots do not rise, or a cost is missing or too many."""
    if len(knots) != len(costs):
        raise ValueError(f"{len(knots)} {name} and {len(costs)} seconds: give as many of each")
    fallen = next((later for earlier, later in zip(knots, knots[1:], strict=False) if later <= earlier), None)
    if fallen is not None:
        raise ValueError(f"{name} must rise, found {fallen} after a number that is not smaller")
