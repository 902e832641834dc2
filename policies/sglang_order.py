"""The orders in which SGLang's queue is served."""

from collections import defaultdict
from collections.abc import Mapping

from .kv.radix import RadixNode, RadixTree
from .kv.token_cache import TokenCache
from .sequence import Sequence
from .sglang_options import SchedulePolicy, SglangOptions

LONG_QUEUE = 128
"""Beyond this many waiting requests the longest prefix is not looked for."""


class Order:
    """Sorts the queue in place. What one look at it changes, lasts: ties keep the order of the last time."""

    def __init__(self, options: SglangOptions, cache: TokenCache) -> None:
        self._options = options
        self._cache = cache
        by_prefix = options.schedule_policy in ("lpm", "dfs-weight")
        self._policy: SchedulePolicy = options.schedule_policy if cache.radix or not by_prefix else "fcfs"

    def sort(self, queue: list[Sequence]) -> None:
        if self._policy == "lof":
            queue.sort(key=lambda sequence: -sequence.max_tokens)
        elif self._policy == "lpm" and len(queue) <= LONG_QUEUE:
            self._sort_by_prefix(queue)
        elif self._policy == "dfs-weight":
            self._sort_by_tree(queue)

    def _match(self, sequence: Sequence) -> tuple[RadixNode, int]:
        return self._cache.match(sequence.tokens, sequence.num_tokens)

    def _sort_by_prefix(self, queue: list[Sequence]) -> None:
        """The longest cached prefix first; last of all those that share theirs with one ahead of them."""
        keys: dict[Sequence, float] = {}
        ahead = RadixTree()
        for sequence in queue:
            matched = self._match(sequence)[1]
            shares = self._shares(sequence, matched, ahead)
            keys[sequence] = float("inf") if shares else -min(matched, sequence.num_tokens - 1)
        queue.sort(key=keys.__getitem__)

    def _shares(self, sequence: Sequence, matched: int, ahead: RadixTree) -> bool:
        """A request without much of a prefix in the cache finds enough of one among those `ahead`; or it joins them."""
        if matched > self._options.in_batch_prefix_caching_check_threshold:
            return False
        tokens = sequence.num_tokens
        shared = ahead.match(sequence.tokens, tokens)[1]
        if shared >= self._options.in_batch_prefix_caching_deprioritize_threshold:
            return True
        ahead.insert(sequence.tokens, tokens, range(tokens))
        return False

    def _sort_by_tree(self, queue: list[Sequence]) -> None:
        """Depth first through the tree: the branch with the most waiting requests first, what is below before it."""
        ending: defaultdict[RadixNode, list[Sequence]] = defaultdict(list)
        for sequence in queue:
            ending[self._match(sequence)[0]].append(sequence)
        weights: dict[RadixNode, int] = {}
        for node in reversed([self._cache.tree.root, *self._cache.tree.nodes()]):
            below = sum(weights[child] for child in node.children.values())
            weights[node] = below + len(ending.get(node, ()))
        queue[:] = [sequence for node in _post_order(self._cache.tree.root, weights) for sequence in ending[node]]


def _post_order(root: RadixNode, weights: Mapping[RadixNode, int]) -> list[RadixNode]:
    """Those with waiting requests at or below them."""
    found: list[RadixNode] = []
    stack = [(root, False)]
    while stack:
        node, opened = stack.pop()
        if opened:
            found.append(node)
            continue
        stack.append((node, True))
        branches = sorted(node.children.values(), key=lambda child: -weights[child])
        stack += [(child, False) for child in reversed(branches) if weights[child]]
    return found
