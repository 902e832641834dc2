"""The radix tree over token runs, against a plain set of known prefixes."""

from hypothesis import given, settings, strategies as st

from arcsim.policies.kv.radix import RadixNode, RadixTree
from arcsim.policies.kv.token_cache import TokenCache
from arcsim.policies.sequence import Sequence
from arcsim.policies.tokens import Tokens

IDS = st.lists(st.integers(0, 2), min_size=1, max_size=14)
PAGES = st.sampled_from([1, 2, 4])


def common(left: list[int], right: list[int]) -> int:
    same = 0
    while same < min(len(left), len(right)) and left[same] == right[same]:
        same += 1
    return same


@given(IDS, IDS, st.integers(0, 5), st.integers(0, 5))
def test_common_tokens_are_those_of_the_lists(left: list[int], right: list[int], start: int, other: int) -> None:
    start, other = min(start, len(left) - 1), min(other, len(right) - 1)
    found = Tokens(left).common(start, len(left), Tokens(right), other)
    assert found == common(left[start:], right[other:])
    assert [Tokens(left).at(position) for position in range(len(left))] == left


@given(st.lists(st.tuples(st.booleans(), IDS), max_size=20), PAGES)
def test_a_prefix_is_found_up_to_the_last_whole_page(calls: list[tuple[bool, list[int]]], page: int) -> None:
    tree, known = RadixTree(page), [list[int]()]
    for inserts, ids in calls:
        stop = len(ids) // page * page
        expected = max(common(ids, other) for other in known) // page * page
        tokens, pages = Tokens(ids), range(1000 * len(known), 1000 * len(known) + len(ids))
        node, length = tree.insert(tokens, len(ids), pages) if inserts else tree.match(tokens, len(ids))
        assert length == expected
        assert node.stop == (stop if inserts else expected)
        if inserts:
            known.append(ids[:stop])
    assert tree.evictable == sum(node.length for node in tree.nodes())


def test_a_match_within_a_node_splits_it_and_a_lock_reaches_the_root() -> None:
    tree = RadixTree()
    leaf, _ = tree.insert(Tokens(range(10)), 10, range(10))
    node, length = tree.match(Tokens([*range(4), 99]), 5)
    assert (length, node.length, leaf.length, leaf.parent) == (4, 4, 6, node)
    assert (list(node.pages), list(leaf.pages)) == ([0, 1, 2, 3], [4, 5, 6, 7, 8, 9])
    tree.lock(leaf)
    assert (tree.protected, tree.evictable, tree.evict(99)) == (10, 0, [])
    tree.unlock(leaf)
    assert (tree.protected, tree.evictable) == (0, 10)


def test_eviction_takes_whole_leaves_the_longest_unvisited_first_and_then_their_parents() -> None:
    tree = RadixTree()
    for number in range(3):
        tree.insert(Tokens([*range(4), 10 * number + 50, 10 * number + 51]), 6, range(6 * number, 6 * number + 6))
    tree.match(Tokens([*range(4), 50]), 5)  # visits the first branch, and splits its leaf
    assert tree.evict(1) == [10, 11]
    assert tree.evict(3) == [16, 17, 5]  # whole leaves only; the lower half of the split keeps the earlier visit
    assert tree.evict(99) == [4, 0, 1, 2, 3]
    assert (tree.evictable, list(tree.nodes())) == (0, [])


class Engine:
    """Requests that come, go on and leave at random, over a `TokenCache`."""

    def __init__(self, page: int, radix: bool) -> None:
        self.cache = TokenCache(24 // page, page, radix=radix)
        self.running: list[Sequence] = []

    def start(self, ids: list[int]) -> None:
        sequence = Sequence(f"r{len(ids)}", ids, 8)
        node, length = self.cache.match(sequence.tokens, len(ids) - 1)
        self.cache.start(sequence, node, length)
        self.running.append(sequence)
        if not self.grow(sequence, len(ids)):
            self.running.remove(sequence)
            self.cache.drop(sequence)

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        pages = self.cache.pool.pages_for(tokens) - len(sequence.block_table)
        if not self.cache.make_room(pages * self.cache.page_size):
            return False
        self.cache.grow(sequence, tokens)
        return True

    def act(self, what: int, ids: list[int]) -> None:
        if what == 0 or not self.running:
            return self.start(ids)
        sequence = self.running[len(ids) % len(self.running)]
        if what == 1:
            self.cache.keep(sequence, min(self.cache.shared(sequence) + len(ids), sequence.prompt_len))
        elif what == 2:
            self.cache.finish(sequence, sequence.prompt_len)
            self.running.remove(sequence)
        else:
            self.cache.drop(sequence)
            self.running.remove(sequence)
        return None


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 3), IDS), max_size=30), PAGES, st.booleans())
def test_every_page_is_free_in_the_tree_or_one_sequences_own(
    actions: list[tuple[int, list[int]]], page: int, radix: bool
) -> None:
    engine = Engine(page, radix)
    for what, ids in actions:
        engine.act(what, ids)
        assert engine.cache.violations(engine.running) == []
        assert engine.cache.free + engine.cache.used == engine.cache.usable
    for sequence in list(engine.running):
        engine.cache.drop(sequence)
    assert engine.cache.used == 0


def test_violations_are_seen() -> None:
    cache = TokenCache(8, 1, radix=True)
    sequence = Sequence("r", [1, 2, 3], 4)
    cache.start(sequence, *cache.match(sequence.tokens, 2))
    cache.grow(sequence, 3)
    cache.keep(sequence, 3)
    assert cache.violations([sequence]) == []
    sequence.block_table[0] += 1
    assert "not those of its prefix" in cache.violations([sequence])[0]
    assert any("locked 1 times, used 0" in text for text in cache.violations([]))
    node: RadixNode = next(iter(cache.tree.nodes()))
    node.locks = 0
    assert any("can be evicted" in text for text in cache.violations([sequence]))
