"""Speculative decoding: drafted tokens that a decode row verifies in the same pass."""

from hashlib import blake2b

from pydantic import BaseModel, ConfigDict, Field

from .sequence import Sequence

DENOMINATOR = 1 << 64


class Speculation(BaseModel):
    """Each decode row carries up to `tokens` drafts and yields one token more than are accepted.

    A draft is accepted if all before it were and it is right, with a probability of `acceptance`. Which of an output's
    tokens are drafted right depends on `seed`, the request's id and the token's place only, so that a schedule cannot
    change them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tokens: int = Field(ge=1)
    acceptance: float = Field(ge=0, le=1)
    seed: int = 0

    def drafts(self, sequence: Sequence) -> int:
        """How many tokens are proposed: none beyond `max_tokens`."""
        return max(0, min(self.tokens, sequence.max_tokens - sequence.generated - 1))

    def accepted(self, sequence: Sequence, drafts: int) -> int:
        """How many of them are right, from the first one on."""
        places = range(sequence.generated, sequence.generated + drafts)
        return next((count for count, place in enumerate(places) if not self._right(sequence, place)), drafts)

    def _right(self, sequence: Sequence, place: int) -> bool:
        digest = blake2b(f"{self.seed} {sequence.id} {place}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) < self.acceptance * DENOMINATOR
