"""Hash chains over full blocks of tokens, made when a cache asks."""

from ..sequence import Sequence


class PrefixChains:
    """For each sequence the hashes of its full blocks, each over its parent's hash and its own tokens.

    Hashes are of integers only, so they are the same in every process.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._chains: dict[Sequence, list[int]] = {}

    def of(self, sequence: Sequence, blocks: int) -> list[int]:
        """Hashes of the first `blocks` full blocks (the list itself may be longer or shared: do not change it)."""
        chain = self._chains.setdefault(sequence, [])
        if len(chain) < blocks:
            self._grow(chain, sequence, blocks)
        return chain if len(chain) == blocks else chain[:blocks]

    def _grow(self, chain: list[int], sequence: Sequence, blocks: int) -> None:
        tokens, size = sequence.tokens, self.block_size
        parent = chain[-1] if chain else 0
        for index in range(len(chain), blocks):
            parent = hash((parent, *tokens.key(index * size, (index + 1) * size)))
            chain.append(parent)

    def drop(self, sequence: Sequence) -> None:
        self._chains.pop(sequence, None)
