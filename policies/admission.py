"""How much of the pool must be free for a waiting request to be let in."""

from collections.abc import Collection

from .continuous_options import Demand
from .kv.cached_blocks import CachedBlocks
from .sequence import Sequence


class Admission:
    """`reserve_full_prompt`: room for all its tokens; `chunk_only`: for its first chunk; `reserve_max_tokens`: for all
    it may ever write, beside what the running ones may still write.

    `watermark`: the share of the pool that must be left, unless nothing is running.
    """

    def __init__(self, demand: Demand, blocks: CachedBlocks, watermark: float) -> None:
        self._demand = demand
        self._blocks = blocks
        self._kept = int(watermark * blocks.pool.usable)

    def fits(self, sequence: Sequence, hit: list[int], chunk_end: int, running: Collection[Sequence]) -> bool:
        """`chunk_end`: tokens that it holds after its first chunk, those of the `hit` included."""
        keep = (self._kept if running else 0) + self._promised(running)
        return self._blocks.fits(self._tokens(sequence, chunk_end), hit, keep)

    def _tokens(self, sequence: Sequence, chunk_end: int) -> int:
        if self._demand == "chunk_only":
            return chunk_end
        return sequence.num_tokens if self._demand == "reserve_full_prompt" else most_tokens(sequence)

    def _promised(self, running: Collection[Sequence]) -> int:
        """Blocks that the running ones may still ask for."""
        if self._demand != "reserve_max_tokens":
            return 0
        return sum(self._blocks.missing(sequence, most_tokens(sequence)) for sequence in running)


def most_tokens(sequence: Sequence) -> int:
    """What it writes if it generates `max_tokens`: its last token needs no KV."""
    return sequence.prompt_len + max(sequence.max_tokens, 1) - 1
