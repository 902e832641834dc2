"""What a step asks of the hardware, in countable facts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """Sums over the forward passes of one step (counts and tokens; no times).

    `prefill_tokens` are computed, `padded_tokens` what an engine that pads computes for them (equal where it packs).
    `context_tokens`: KV entries read, over all rows. `prefill_attended`: query-key pairs of the prefill rows under a
    causal mask (a decode row attends its context once). `draft_tokens`: verified by decode rows, beside their own.
    """

    forwards: int = 0
    prefill_seqs: int = 0
    decode_seqs: int = 0
    prefill_tokens: int = 0
    padded_tokens: int = 0
    context_tokens: int = 0
    prefill_attended: int = 0
    draft_tokens: int = 0

    @property
    def rows(self) -> int:
        """Each sequence of each forward, prefill and decode."""
        return self.prefill_seqs + self.decode_seqs
