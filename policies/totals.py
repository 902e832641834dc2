"""What a step puts through the model, summed over its rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .step import Forward


@dataclass(slots=True)
class Totals:
    """Counts of rows and tokens. `context`: KV entries read, each row's own new tokens included.
    `attended`: query-key pairs of the prefill rows under a causal mask. `sampling`: tokens that the rows yield.
    `drafts`: tokens that decode rows verify, beside their own."""

    forwards: int = 0
    prefill_seqs: int = 0
    decode_seqs: int = 0
    prefill_tokens: int = 0
    padded_tokens: int = 0
    cached: int = 0
    context: int = 0
    attended: int = 0
    sampling: int = 0
    drafts: int = 0

    @classmethod
    def of(cls, forwards: Iterable["Forward"]) -> "Totals":
        totals = cls()
        for forward in forwards:
            totals._add(forward)
        return totals

    @property
    def width(self) -> int:
        return self.prefill_seqs + self.decode_seqs

    @property
    def decode_tokens(self) -> int:
        return self.decode_seqs + self.drafts

    def _verify(self, drafts: int, accepted: int) -> None:
        self.drafts += drafts
        self.context += drafts
        self.sampling += accepted

    def _add(self, forward: "Forward") -> None:
        self.forwards += 1
        before = self.prefill_tokens
        if forward.decode is not None:
            rows = len(forward.decode.members)
            self.decode_seqs += rows
            self.sampling += rows
            self.context += forward.decode.context_tokens + rows
        for chunk in forward.chunks:
            self.context += chunk.start + chunk.length
            self.sampling += chunk.samples
            if chunk.decode:
                self.decode_seqs += 1
                if chunk.drafts:
                    self._verify(chunk.drafts, chunk.accepted)
            else:
                self.prefill_seqs += 1
                self.prefill_tokens += chunk.length
                self.cached += chunk.cached
                self.attended += chunk.attended
        packed = self.prefill_tokens - before
        self.padded_tokens += packed if forward.padded_tokens is None else forward.padded_tokens
