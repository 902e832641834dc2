"""A latency model of a few numbers: what a step of each kind costs, and each token, row and KV entry in it."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from ...models.fields import Seconds
from .decode_series import series
from .work import Work


class Affine(BaseModel):
    """All numbers in seconds (or texts with a unit, such as `2.9ms`), none negative.

    A step with any prefill chunk pays `prefill_step`, another one `decode_step`. Each padded prefill token pays
    `padded_prefill_token`, each KV entry read `context_token`. A row, which is each sequence of each forward,
    prefill included, pays `row`, and `host_row` on the host. The drafts that a row verifies cost nothing more.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    kind: Literal["affine"] = "affine"
    decode_step: Seconds = 0.0
    prefill_step: Seconds = 0.0
    padded_prefill_token: Seconds = 0.0
    row: Seconds = 0.0
    context_token: Seconds = 0.0
    host_row: Seconds = 0.0

    def seconds(self, work: Work) -> float:
        return self._fixed(work) + self.context_token * work.context_tokens

    def host_seconds(self, work: Work) -> float:
        return self.host_row * work.rows

    def decode_series(self, work: Work, steps: int) -> NDArray[np.float64]:
        return series(self._fixed(work), self.context_token, work, steps)

    def describe(self) -> dict[str, Any]:
        return self.model_dump()

    def _fixed(self, work: Work) -> float:
        """All but the context."""
        step = self.prefill_step if work.prefill_seqs else self.decode_step
        return step + self.padded_prefill_token * work.padded_tokens + (self.row + self.host_row) * work.rows
