"""The block tables of sequences over a block pool, with prefix hits taken and computed blocks published."""

from ..sequence import Sequence
from .block_pool import BlockPool
from .prefix import PrefixChains


class CachedBlocks:
    """Gives blocks to sequences and takes them back; all or nothing at each call.

    With `caching` off nothing is hashed, looked up or published.
    """

    def __init__(self, pool: BlockPool, *, caching: bool) -> None:
        self.pool = pool
        self.caching = caching
        self._chains = PrefixChains(pool.block_size)
        self._published: dict[Sequence, int] = {}

    def hit(self, sequence: Sequence) -> list[int]:
        """Cached blocks that a fresh sequence can start from; at least one token is always left to compute."""
        if not self.caching:
            return []
        return self.pool.lookup(self._chains.of(sequence, (sequence.num_tokens - 1) // self.pool.block_size))

    def next_hash(self, sequence: Sequence, hit: int) -> int | None:
        """What has to be published to make a hit of `hit` blocks longer; None: it cannot be longer."""
        if not self.caching or hit >= (sequence.num_tokens - 1) // self.pool.block_size:
            return None
        return self._chains.of(sequence, hit + 1)[hit]

    def missing(self, sequence: Sequence, tokens: int) -> int:
        """Blocks that a sequence lacks to hold `tokens` tokens."""
        return max(0, self.pool.blocks_for(tokens) - len(sequence.block_table))

    def fits(self, tokens: int, hit: list[int], spare: int = 0) -> bool:
        """A fresh sequence of `tokens` tokens can be given blocks, its idle hits counted as taken, and `spare` are
        left."""
        return self.pool.blocks_for(tokens) - len(hit) + self.pool.idle(hit) + spare <= self.pool.free

    def start(self, sequence: Sequence, tokens: int, hit: list[int]) -> list[int]:
        """First blocks of a fresh sequence: its hits, then new ones for `tokens` tokens. Check `fits` before."""
        self.pool.touch(hit)
        sequence.block_table = hit + self.pool.allocate(max(0, self.pool.blocks_for(tokens) - len(hit)))
        sequence.cached = sequence.computed = len(hit) * self.pool.block_size
        self._published[sequence] = len(hit)
        return sequence.block_table

    def grow(self, sequence: Sequence, tokens: int) -> list[int]:
        """New blocks so that the sequence can hold `tokens` tokens. Raises `MemoryError` if the pool has too few."""
        blocks = self.pool.allocate(self.missing(sequence, tokens))
        sequence.block_table.extend(blocks)
        return blocks

    def publish(self, sequence: Sequence, tokens: int) -> None:
        """Make the full blocks among the first `tokens` tokens findable."""
        if not self.caching:
            return
        done, full = self._published.get(sequence, 0), tokens // self.pool.block_size
        if full > done:
            hashes = self._chains.of(sequence, full)
            for index in range(done, full):
                self.pool.publish(sequence.block_table[index], hashes[index])
            self._published[sequence] = full

    def free(self, sequence: Sequence) -> None:
        """Release everything the sequence holds; what was published stays findable until reused."""
        self.pool.release(sequence.block_table)
        sequence.block_table = []
        self._published.pop(sequence, None)

    def forget(self, sequence: Sequence) -> None:
        """The sequence is gone for good: drop its hashes too."""
        self._chains.drop(sequence)
