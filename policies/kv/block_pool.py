"""A pool of equal KV blocks, reference counted, with a prefix cache that evicts lazily."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence as Ids
from itertools import chain

from ..sequence import Sequence


class BlockPool:
    """Blocks `first_id` to `first_id + usable - 1` of `block_size` tokens each.

    The free queue is least recently freed first: allocation takes its head, and only then forgets what a block cached.
    `release` puts blocks back in reverse order, so that the tail of a chain is evicted before its head (not so with
    `head_first`); with `unhashed_first`, blocks that cache nothing go to the head of the queue instead (vLLM).
    `changes` grows whenever blocks are freed or published, `freed` whenever they are freed: a request that did not fit
    can only fit after that.
    """

    def __init__(
        self, usable: int, block_size: int, *, first_id: int = 0, unhashed_first: bool = False, head_first: bool = False
    ) -> None:
        self.usable = usable
        self.block_size = block_size
        self.unhashed_first = unhashed_first
        self.head_first = head_first
        self.changes = 0
        self.freed = 0
        self._first_id = first_id
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(first_id, first_id + usable))
        self._holders: dict[int, int] = {}
        self._hash_of: dict[int, int] = {}
        self._copies: dict[int, int | dict[int, None]] = {}  # by hash: a block, or several in order of publication

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return self.usable - len(self._free)

    @property
    def capacity(self) -> int:
        return self.usable * self.block_size

    def room(self, sequence: Sequence) -> int:
        return len(sequence.block_table) * self.block_size

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks from the head of the free queue. Raises `MemoryError` if there are fewer."""
        if count > len(self._free):
            raise MemoryError(f"{count} blocks wanted, {len(self._free)} of {self.usable} free")
        pop = self._free.popitem
        blocks = [pop(last=False)[0] for _ in range(count)]
        self._holders.update(dict.fromkeys(blocks, 1))
        if self._hash_of:
            for block in blocks:
                if block in self._hash_of:
                    self._forget(block)
        return blocks

    def touch(self, blocks: Iterable[int]) -> None:
        """Hold cached blocks once more; those that were idle leave the free queue."""
        for block in blocks:
            if block in self._free:
                del self._free[block]
            self._holders[block] = self._holders.get(block, 0) + 1

    def release(self, blocks: Ids[int]) -> None:
        """Give up one hold on each block, the last block first unless `head_first`."""
        self.changes += 1
        self.freed += 1
        for block in blocks if self.head_first else reversed(blocks):
            held = self._holders[block] - 1
            if held:
                self._holders[block] = held
                continue
            del self._holders[block]
            self._free[block] = None
            if self.unhashed_first and block not in self._hash_of:
                self._free.move_to_end(block, last=False)

    def publish(self, block: int, block_hash: int) -> None:
        """Make a block findable under the hash of its token chain. A second copy waits behind the first."""
        if block in self._hash_of:
            return
        self.changes += 1
        self._hash_of[block] = block_hash
        copies = self._copies.setdefault(block_hash, block)
        if isinstance(copies, dict):
            copies[block] = None
        elif copies != block:
            self._copies[block_hash] = {copies: None, block: None}

    def lookup(self, hashes: Iterable[int]) -> list[int]:
        """The leading run of cached blocks of a chain."""
        found = []
        for block_hash in hashes:
            copies = self._copies.get(block_hash)
            if copies is None:
                break
            found.append(next(iter(copies)) if isinstance(copies, dict) else copies)
        return found

    def knows(self, block_hash: int | None) -> bool:
        """A block is published under that hash."""
        return block_hash in self._copies

    def idle(self, blocks: Iterable[int]) -> int:
        """How many of the blocks nobody holds: taking them uses up free blocks."""
        return sum(1 for block in blocks if block not in self._holders)

    def violations(self, holders: Iterable[Sequence]) -> list[str]:
        """Law: free + held == usable, and each block is held as often as sequences list it."""
        return self._wrong_holders(holders) + self._wrong_count(0)

    def _wrong_holders(self, holders: Iterable[Sequence]) -> list[str]:
        listed = Counter(chain.from_iterable(sequence.block_table for sequence in holders))
        if dict(listed) == self._holders:
            return []
        return [
            f"block {block} is held {self._holders.get(block, 0)} times, but {listed.get(block, 0)} sequences list it"
            for block in sorted(listed.keys() | self._holders.keys())
            if listed.get(block, 0) != self._holders.get(block, 0)
        ]

    def _wrong_count(self, elsewhere: int) -> list[str]:
        counted = len(self._free) + len(self._holders) + elsewhere
        if counted == self.usable and not self._free.keys() & self._holders.keys():
            return []
        return [f"{len(self._free)} free + {len(self._holders)} held blocks, {self.usable} usable"]

    def _forget(self, block: int) -> None:
        block_hash = self._hash_of.pop(block)
        copies = self._copies[block_hash]
        if isinstance(copies, dict) and len(copies) > 1:
            del copies[block]
        else:
            del self._copies[block_hash]
