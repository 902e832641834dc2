"""Block tables with prefix hits, hash chains, and the calendar of who needs a block when."""

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from arcsim.policies.base import DecodeBatch, EmulatedSample, Sequence, Tokens
from arcsim.policies.kv.block_pool import BlockPool
from arcsim.policies.kv.cached_blocks import CachedBlocks
from arcsim.policies.kv.growth import Growth
from arcsim.policies.kv.prefix import PrefixChains

from .drawing import stable


def sequence(id: str, *pieces: tuple[str, int]) -> Sequence:
    return Sequence(id, Tokens.of_pieces(pieces), 99)


def served(blocks: CachedBlocks, one: Sequence, *, publish: bool = True) -> Sequence:
    """As if it had run and been freed."""
    blocks.start(one, one.num_tokens, blocks.hit(one))
    if publish:
        blocks.publish(one, one.num_tokens)
    blocks.free(one)
    return one


@pytest.mark.parametrize(("length", "cached"), [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8), (40, 12)])
def test_a_hit_is_whole_blocks_and_leaves_a_token_to_compute(length: int, cached: int) -> None:
    """Of a text of which 15 tokens, three full blocks of 4, were computed before. (Mutation tried: the hit cap
    without the - 1 covers a prompt of 4, 8 or 12 tokens whole.)"""
    blocks = CachedBlocks(BlockPool(30, 4), caching=True)
    served(blocks, sequence("a", ("text", 15)))
    later = sequence("b", ("text", length))
    hit = blocks.hit(later)
    assert len(hit) * 4 == cached
    blocks.start(later, later.num_tokens, hit)
    assert later.cached == later.computed == cached and len(later.block_table) == -(-length // 4)
    assert later.uncomputed >= 1


def test_a_hit_ends_where_the_texts_part() -> None:
    blocks = CachedBlocks(BlockPool(30, 4), caching=True)
    served(blocks, sequence("a", ("system", 6), ("a", 10)))
    assert len(blocks.hit(sequence("b", ("system", 6), ("b", 10)))) == 1
    assert len(blocks.hit(sequence("c", ("system", 6), ("a", 10)))) == 3
    assert blocks.hit(sequence("d", ("x", 1), ("system", 6), ("a", 10))) == []


def test_only_what_was_published_is_found() -> None:
    blocks = CachedBlocks(BlockPool(30, 4), caching=True)
    served(blocks, sequence("a", ("text", 16)), publish=False)
    assert blocks.hit(sequence("b", ("text", 16))) == []
    running = sequence("c", ("text", 16))
    blocks.start(running, 16, [])
    blocks.publish(running, 11)
    assert len(blocks.hit(sequence("d", ("text", 16)))) == 2  # while it still runs
    blocks.publish(running, 16)
    blocks.publish(running, 16)
    assert len(blocks.hit(sequence("d", ("text", 17)))) == 4


def test_generated_tokens_are_found_too() -> None:
    blocks = CachedBlocks(BlockPool(30, 4), caching=True)
    one = sequence("a", ("text", 6))
    blocks.start(one, 6, [])
    one.append(one.emulate(4))
    blocks.grow(one, 9)
    blocks.publish(one, 9)
    blocks.free(one)
    assert len(blocks.hit(one)) == 2  # ten tokens: it comes back after a preemption
    assert len(blocks.hit(sequence("b", ("text", 6), ("other", 4)))) == 1


def test_two_hold_a_shared_block_and_each_gives_up_its_own_hold() -> None:
    pool = BlockPool(10, 4)
    blocks = CachedBlocks(pool, caching=True)
    served(blocks, sequence("a", ("text", 8)))
    b, c = sequence("b", ("text", 9)), sequence("c", ("text", 12))
    for one in (b, c):
        blocks.start(one, one.num_tokens, blocks.hit(one))
    assert b.block_table[:2] == c.block_table[:2] == [0, 1] and pool.used == 4
    assert pool.violations([b, c]) == []
    blocks.free(b)
    assert pool.used == 3 and b.block_table == [] and pool.violations([c]) == []


def test_idle_hits_use_up_free_blocks() -> None:
    """A pool of 4: of a prompt of 4 blocks that hits 2 idle ones, the hits count as taken, held ones do not.
    (Mutation tried: idle hits are not counted.)"""
    pool = BlockPool(4, 4)
    blocks = CachedBlocks(pool, caching=True)
    served(blocks, sequence("a", ("text", 8)))
    long = sequence("b", ("text", 16))
    assert blocks.fits(16, blocks.hit(long)) and not blocks.fits(17, blocks.hit(long))
    other = pool.allocate(1)
    assert not blocks.fits(16, blocks.hit(long))
    pool.release(other)
    holding = sequence("c", ("text", 8))
    blocks.start(holding, 8, blocks.hit(holding))  # holds block 0 and its own second one
    assert blocks.fits(12, blocks.hit(sequence("d", ("text", 12))))


def test_all_or_nothing() -> None:
    pool = BlockPool(3, 4)
    blocks = CachedBlocks(pool, caching=False)
    one = sequence("a", ("text", 4))
    blocks.start(one, 4, [])
    assert blocks.missing(one, 4) == 0 and blocks.missing(one, 5) == 1 and blocks.missing(one, 13) == 3
    with pytest.raises(MemoryError):
        blocks.grow(one, 13)
    assert one.block_table == [0] and pool.free == 2
    assert blocks.grow(one, 12) == [1, 2] and one.block_table == [0, 1, 2]


def test_with_caching_off_nothing_is_looked_up_or_published() -> None:
    pool = BlockPool(10, 4)
    blocks = CachedBlocks(pool, caching=False)
    served(blocks, sequence("a", ("text", 16)))
    assert blocks.hit(sequence("b", ("text", 16))) == [] and pool.changes == 1


def test_a_chain_names_a_block_with_all_that_comes_before_it() -> None:
    chains = PrefixChains(4)
    a, b = sequence("a", ("x", 4), ("same", 4)), sequence("b", ("y", 4), ("same", 4))
    assert chains.of(a, 2)[0] != chains.of(b, 2)[0] and chains.of(a, 2)[1] != chains.of(b, 2)[1]
    assert chains.of(a, 1) == chains.of(a, 2)[:1] == PrefixChains(4).of(sequence("c", ("x", 6)), 1)
    chains.drop(a)
    assert chains.of(a, 2) == PrefixChains(4).of(a, 2)


def test_hashes_are_the_same_in_every_process() -> None:
    """Only whole numbers are hashed, and Python's hash of those has no seed."""
    assert PrefixChains(2).of(Sequence("a", [1, 2, 3, 4], 9), 2) == [
        hash((0, 1, 2)), hash((hash((0, 1, 2)), 3, 2)),
    ]


members = st.lists(st.tuples(st.integers(1, 13), st.integers(0, 3)), min_size=1, max_size=5)
"""Tokens computed when it joined, and how many ticks after the first one."""


def growing(members: list[tuple[int, int]], size: int) -> tuple[DecodeBatch, Growth, list[Sequence], int]:
    batch = DecodeBatch()
    growth, rows, used = Growth(batch, size), [], 0
    for place, (computed, late) in enumerate(sorted(members, key=lambda member: member[1])):
        while batch.ticks < late:
            used += tick(batch, growth, size)
        one = Sequence(f"s{place}", range(computed), 999)
        one.computed = computed
        one.append(one.emulate(1))
        one.block_table = [0] * -(-computed // size)
        batch.join(one)
        growth.watch(one)
        rows.append(one)
    return batch, growth, rows, used


def tick(batch: DecodeBatch, growth: Growth, size: int) -> int:
    """One decode step; returns how many blocks it took."""
    due = list(growth.take())
    lacking = [one for one in batch if one.computed + 1 > len(one.block_table) * size]
    assert Counter(due) == Counter(lacking)
    for one in due:
        one.block_table.append(0)
        growth.watch(one)
    batch.advance(EmulatedSample(lambda: iter(batch)))
    return len(due)


@stable(150)
@given(members, st.sampled_from([1, 2, 4]), st.integers(0, 12))
def test_the_calendar_names_exactly_who_lacks_a_block(rows: list[tuple[int, int]], size: int, more: int) -> None:
    batch, growth, _, _ = growing(rows, size)
    for _ in range(more):
        tick(batch, growth, size)


@stable(150)
@given(members, st.sampled_from([1, 2, 4]), st.integers(0, 20))
def test_free_blocks_last_as_many_steps_as_the_calendar_says(
    rows: list[tuple[int, int]], size: int, free: int
) -> None:
    """Beyond the current step, whose own blocks are given: not one more, not one fewer. (Mutation tried: one step too
    many.)"""
    batch, growth, _, _ = growing(rows, size)
    for one in growth.take():  # the current step's own
        one.block_table.append(0)
        growth.watch(one)
    steps, left = growth.steps_within(free), free
    batch.advance(EmulatedSample(lambda: iter(batch)))
    taken = 0
    while True:
        left -= tick(batch, growth, size)
        if left < 0:
            break
        taken += 1
    assert steps == taken


def test_who_left_the_batch_needs_no_block() -> None:
    batch, growth, rows, _ = growing([(4, 0), (4, 0)], 4)
    batch.leave(rows[0])
    assert growth.peek() == [rows[1]] and growth.take() == [rows[1]] and growth.take() == []
    batch.leave(rows[1])
    assert growth.steps_within(99) == 0
