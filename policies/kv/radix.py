"""A radix tree over token strings: prefixes found again, locked while in use, evicted leaf by leaf."""

from collections.abc import Hashable, Iterator, Sequence as Ids
from heapq import heappop, heappush

from ..tokens import Tokens


class RadixNode:
    """Tokens `start` to `stop` of a token string, and the pages that hold their KV.

    `locks` counts the users of the node or of one below it. `stamp`: when it was last visited.
    """

    __slots__ = ("children", "listed", "locks", "pages", "parent", "stamp", "start", "stop", "tokens")

    def __init__(self, parent: "RadixNode | None", tokens: Tokens, start: int, stop: int, pages: Ids[int]) -> None:
        self.parent = parent
        self.tokens = tokens
        self.start = start
        self.stop = stop
        self.pages = pages
        self.children: dict[Hashable, RadixNode] = {}
        self.locks = 0
        self.stamp = 0
        self.listed = False  # among the tree's candidates for eviction

    @property
    def length(self) -> int:
        return self.stop - self.start


class RadixTree:
    """Prefixes in whole pages of `page_size` tokens, as SGLang's `RadixCache` keeps them.

    A look-up visits the nodes from the root on and splits the one in which it ends. All nodes that one look-up or
    insertion visits get the same stamp; a node made by it (the upper half of a split, a new leaf) gets a later one.
    Only leaves that nobody locks are evicted, the longest unvisited first. Sizes are in tokens; `evictable` counts
    inner nodes too.
    """

    def __init__(self, page_size: int = 1) -> None:
        self.page_size = page_size
        self.root = RadixNode(None, Tokens(), 0, 0, [])
        self.root.locks = 1
        self.evictable = 0
        self.protected = 0
        self._now = 0
        self._made = 0
        self._candidates: list[tuple[int, int, RadixNode]] = []

    def aligned(self, tokens: int) -> int:
        """Down to whole pages."""
        return tokens // self.page_size * self.page_size

    def match(self, tokens: Tokens, stop: int) -> tuple[RadixNode, int]:
        """The longest known prefix of the first `stop` tokens: the node in which it ends, and its length."""
        return self._descend(tokens, self.aligned(stop))

    def insert(self, tokens: Tokens, stop: int, pages: Ids[int]) -> tuple[RadixNode, int]:
        """Make the first `stop` tokens (whole pages of them) known.

        `pages` hold their KV; the tree keeps those of the part it did not know. Returns the node in which the tokens
        end, and how many of them were known before.
        """
        stop = self.aligned(stop)
        node, known = self._descend(tokens, stop)
        if known == stop:
            return node, known
        held = pages[known // self.page_size : stop // self.page_size]
        leaf = RadixNode(node, tokens, known, stop, held)
        leaf.stamp = self._tick()
        node.children[self._key(tokens, known)] = leaf
        self.evictable += stop - known
        self._list(leaf)
        return leaf, known

    def touch(self, node: RadixNode) -> None:
        """Visit a node and all above it, as a look-up that ends in it does."""
        stamp = self._tick()
        for visited in self._path(node):
            visited.stamp = stamp
        self.root.stamp = stamp

    def lock(self, node: RadixNode) -> None:
        """Keep a node and all above it from being evicted."""
        for locked in self._path(node):
            if not locked.locks:
                self.evictable -= locked.length
                self.protected += locked.length
            locked.locks += 1

    def unlock(self, node: RadixNode) -> None:
        for locked in self._path(node):
            locked.locks -= 1
            if not locked.locks:
                self.evictable += locked.length
                self.protected -= locked.length
                self._list(locked)

    def evict(self, tokens: int) -> list[int]:
        """Forget leaves until `tokens` tokens are free, whole leaves at a time. Returns their pages."""
        pages: list[int] = []
        freed = 0
        while freed < tokens and self._candidates:
            stamp, _, leaf = heappop(self._candidates)
            leaf.listed = False
            if not self._is_free_leaf(leaf):
                continue
            if leaf.stamp != stamp:  # it was visited since
                self._list(leaf)
                continue
            freed += leaf.length
            pages += leaf.pages
            self._forget(leaf)
        return pages

    def pages(self, node: RadixNode, start: int) -> list[int]:
        """Pages of the tokens from `start` (whole pages) to the end of `node`."""
        parts: list[Ids[int]] = []
        while node.parent is not None and node.stop > start:
            parts.append(node.pages[max(0, start - node.start) // self.page_size :])
            node = node.parent
        return [page for part in reversed(parts) for page in part]

    def nodes(self) -> Iterator[RadixNode]:
        """Every node but the root, parents first."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def _descend(self, tokens: Tokens, stop: int) -> tuple[RadixNode, int]:
        node, at = self.root, 0
        if not stop:
            return node, 0
        node.stamp = stamp = self._tick()
        while at < stop:
            child = node.children.get(self._key(tokens, at))
            if child is None:
                break
            child.stamp = stamp
            same = min(self.aligned(child.tokens.common(child.start, child.stop, tokens, at)), stop - at)
            at += same
            if same < child.length:
                return self._split(child, same), at
            node = child
        return node, at

    def _split(self, lower: RadixNode, length: int) -> RadixNode:
        """Put a new node before `lower` that takes its first `length` tokens."""
        assert lower.parent is not None
        upper = RadixNode(lower.parent, lower.tokens, lower.start, lower.start + length, ())
        pages = length // self.page_size
        upper.pages, lower.pages = lower.pages[:pages], lower.pages[pages:]
        upper.locks = lower.locks
        upper.stamp = self._tick()
        lower.parent.children[self._key(lower.tokens, lower.start)] = upper
        lower.start += length
        lower.parent = upper
        upper.children[self._key(lower.tokens, lower.start)] = lower
        return upper

    def _forget(self, leaf: RadixNode) -> None:
        assert leaf.parent is not None
        del leaf.parent.children[self._key(leaf.tokens, leaf.start)]
        self.evictable -= leaf.length
        self._list(leaf.parent)

    def _key(self, tokens: Tokens, at: int) -> Hashable:
        return tokens.at(at) if self.page_size == 1 else tokens.key(at, at + self.page_size)

    def _is_free_leaf(self, node: RadixNode) -> bool:
        return not node.locks and not node.children

    def _list(self, node: RadixNode) -> None:
        if self._is_free_leaf(node) and not node.listed:
            node.listed = True
            self._made += 1
            heappush(self._candidates, (node.stamp, self._made, node))

    def _path(self, node: RadixNode) -> Iterator[RadixNode]:
        while node.parent is not None:
            yield node
            node = node.parent

    def _tick(self) -> int:
        self._now += 1
        return self._now
