"""Pages for policies of engines that keep a cache for each sequence, and so have no block table."""

from ..engine.errors import BackendFailed
from ..policies.base import Ledger, Sequence


class OwnPages:
    """Follows the policy's ledger: a sequence has pages for the tokens that the ledger says it holds.

    Such engines never count memory; the KV cache has blocks 0 to `blocks - 1` all the same.
    """

    def __init__(self, ledger: Ledger, blocks: int, block_size: int) -> None:
        self._ledger = ledger
        self._blocks = blocks
        self._block_size = block_size
        self._free = list(range(blocks - 1, -1, -1))
        self._held: dict[Sequence, list[int]] = {}

    def release(self) -> None:
        """Take back what the ledger no longer holds. Call before a step's pages are asked for."""
        for sequence, pages in list(self._held.items()):
            kept = self._pages(self._ledger.room(sequence))
            self._free += pages[kept:]
            del pages[kept:]
            if not pages:
                del self._held[sequence]

    def of(self, sequence: Sequence, tokens: int) -> list[int]:
        """At least the pages for its first `tokens` tokens. Raises `BackendFailed` if the cache is full."""
        held = self._held.setdefault(sequence, [])
        lack = self._pages(tokens) - len(held)
        if lack > len(self._free):
            raise BackendFailed(
                f"the KV cache of {self._blocks} blocks of {self._block_size} tokens is full: {sequence!r} needs "
                f"{lack} more, {len(self._free)} are free; this policy counts no memory, so raise engine.num_blocks"
            )
        held += [self._free.pop() for _ in range(lack)]
        return held

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self._block_size)
