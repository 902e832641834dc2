"""The KV of running requests: pages of a token pool, the leading ones shared through a radix tree."""

from collections import Counter
from collections.abc import Iterable

from ..sequence import Sequence
from ..tokens import Tokens
from .radix import RadixNode, RadixTree
from .token_pool import TokenPool


class TokenCache:
    """Gives pages to sequences, keeps what they computed in the tree, and takes the rest back.

    A sequence's first `shared(sequence)` tokens lie in pages of the tree, which its lock protects; the other pages of
    its block table are its own. Without `radix` nothing is shared and nothing is kept. Sizes are in tokens.
    """

    def __init__(self, pages: int, page_size: int, *, radix: bool) -> None:
        self.pool = TokenPool(pages, page_size)
        self.page_size = page_size
        self.radix = radix
        self.tree = RadixTree(page_size)
        self._ends: dict[Sequence, tuple[RadixNode, int]] = {}

    @property
    def available(self) -> int:
        return self.pool.available

    @property
    def evictable(self) -> int:
        return self.tree.evictable

    @property
    def protected(self) -> int:
        return self.tree.protected

    @property
    def spare(self) -> int:
        """What can be had: free tokens, and those that can be evicted."""
        return self.pool.available + self.tree.evictable

    # The ledger, in pages

    @property
    def usable(self) -> int:
        return self.pool.pages

    @property
    def free(self) -> int:
        return self.pool.free_pages + self.tree.evictable // self.page_size

    @property
    def used(self) -> int:
        return self.usable - self.free

    @property
    def capacity(self) -> int:
        """Tokens that all pages hold."""
        return self.pool.pages * self.page_size

    def room(self, sequence: Sequence) -> int:
        """Tokens that a sequence's pages hold."""
        return len(sequence.block_table) * self.page_size

    def match(self, tokens: Tokens, stop: int) -> tuple[RadixNode, int]:
        """The longest prefix of the first `stop` tokens that is kept: its node and its length."""
        return self.tree.match(tokens, stop) if self.radix else (self.tree.root, 0)

    def start(self, sequence: Sequence, node: RadixNode, length: int) -> None:
        """A sequence starts from a kept prefix, which stays locked until it is finished or dropped."""
        self.tree.lock(node)
        self._ends[sequence] = node, length
        sequence.block_table = self.tree.pages(node, 0)

    def shared(self, sequence: Sequence) -> int:
        return self._ends[sequence][1]

    def make_room(self, tokens: int) -> bool:
        """Evict what `tokens` free tokens lack. False: there is not enough to evict."""
        lack = tokens - self.pool.available
        if lack > 0:
            self.pool.release(self.tree.evict(lack))
        return self.pool.available >= tokens

    def grow(self, sequence: Sequence, tokens: int) -> list[int]:
        """Give the pages that a sequence lacks to hold `tokens` tokens. Raises `MemoryError` if there are too few."""
        pages = self.pool.allocate(self.pool.pages_for(tokens) - len(sequence.block_table))
        sequence.block_table += pages
        return pages

    def keep(self, sequence: Sequence, stop: int) -> None:
        """Put the whole pages among the first `stop` tokens into the tree, and go on from there."""
        if not self.radix:
            return
        node, stop = self._insert(sequence, stop)
        if stop:
            self.tree.touch(node)
        self.tree.lock(node)
        self.tree.unlock(self._ends[sequence][0])
        self._ends[sequence] = node, stop

    def finish(self, sequence: Sequence, stop: int) -> None:
        """Leave the first `stop` tokens to the tree and give back everything else."""
        if self.radix:
            _, kept = self._insert(sequence, stop)
            self._let_go(sequence, kept)
        else:
            self._let_go(sequence, 0)

    def drop(self, sequence: Sequence) -> None:
        """Give everything back; the prefix that is in the tree stays there, unlocked."""
        self._let_go(sequence, self.shared(sequence))

    def _insert(self, sequence: Sequence, stop: int) -> tuple[RadixNode, int]:
        """Returns the node in which the sequence's pages end now, and the length kept."""
        stop, size = self.tree.aligned(stop), self.page_size
        node, known = self.tree.insert(sequence.tokens, stop, sequence.block_table)
        first = self.shared(sequence)
        if known > first:
            table = sequence.block_table
            twice = table[first // size : known // size]
            table[first // size : known // size] = self.tree.pages(node, first)[: len(twice)]
            self.pool.release(twice)
        return node, stop

    def _let_go(self, sequence: Sequence, kept: int) -> None:
        self.pool.release(sequence.block_table[kept // self.page_size :])
        sequence.block_table = []
        node, _ = self._ends.pop(sequence)
        self.tree.unlock(node)

    def violations(self, holders: Iterable[Sequence]) -> list[str]:
        """Law: each page is free, in the tree, or one sequence's own; shared pages and locks are as the tree says."""
        places = Counter(self.pool.listed())
        users: Counter[RadixNode] = Counter()
        wrong = []
        for sequence in holders:
            if sequence not in self._ends:
                wrong += [f"{sequence.id} lists pages it does not hold"] if sequence.block_table else []
                continue
            node, shared = self._ends[sequence]
            first = shared // self.page_size
            places.update(sequence.block_table[first:])
            if sequence.block_table[:first] != self.tree.pages(node, 0):
                wrong.append(f"the first {first} pages of {sequence.id} are not those of its prefix in the tree")
            while node.parent is not None:
                users[node] += 1
                node = node.parent
        return wrong + self._tree_violations(places, users)

    def _tree_violations(self, places: "Counter[int]", users: "Counter[RadixNode]") -> list[str]:
        wrong, evictable = [], 0
        for node in self.tree.nodes():
            places.update(node.pages)
            evictable += 0 if node.locks else node.length
            if node.locks != users[node]:
                where = f"tokens {node.start} to {node.stop}"
                wrong.append(f"{where} are locked {node.locks} times, used {users[node]} times")
        if evictable != self.tree.evictable:
            wrong.append(f"{evictable} tokens can be evicted, the tree says {self.tree.evictable}")
        twice = sorted(page for page, count in places.items() if count != 1)
        if twice or len(places) != self.pool.pages:
            wrong.append(f"{len(places)} of {self.pool.pages} pages are somewhere, {twice[:8]} in several places")
        return wrong
