"""The block pool: who holds what, what is evicted first, and what the audit would find."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arcsim.policies.base import Sequence
from arcsim.policies.kv.block_pool import BlockPool

from .drawing import stable


def holder(blocks: list[int]) -> Sequence:
    sequence = Sequence("holder", [1], 1)
    sequence.block_table = blocks
    return sequence


def test_blocks_are_taken_from_the_head_and_come_back_last_first() -> None:
    """The tail of a chain is reused before its head, so that a beginning stays findable longest. (Mutation tried:
    released in the order of the table.)"""
    pool = BlockPool(5, 16)
    assert pool.allocate(3) == [0, 1, 2] and (pool.free, pool.used) == (2, 3)
    pool.release([0, 1, 2])
    assert pool.allocate(5) == [3, 4, 2, 1, 0]


def test_ids_may_start_above_a_null_block() -> None:
    assert BlockPool(2, 16, first_id=1).allocate(2) == [1, 2]


def test_more_than_is_free_is_refused_and_nothing_is_taken() -> None:
    pool = BlockPool(3, 16)
    pool.allocate(1)
    with pytest.raises(MemoryError, match="3 blocks wanted, 2 of 3 free"):
        pool.allocate(3)
    assert pool.free == 2 and pool.allocate(0) == []


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (32, 2)])
def test_tokens_take_whole_blocks(tokens: int, blocks: int) -> None:
    assert BlockPool(9, 16).blocks_for(tokens) == blocks


def test_what_was_published_is_found_until_its_block_is_used_again() -> None:
    pool = BlockPool(4, 16)
    for block, block_hash in zip(pool.allocate(3), (11, 12, 13), strict=True):
        pool.publish(block, block_hash)
    pool.release([0, 1, 2])
    assert pool.lookup([11, 12, 13]) == [0, 1, 2] and pool.idle([0, 1, 2]) == 3
    assert pool.allocate(2) == [3, 2]  # the unused one, then the tail
    assert pool.lookup([11, 12, 13]) == [0, 1]
    assert pool.lookup([99, 11]) == []  # stops at the first that is missing


def test_a_hit_takes_the_block_out_of_the_queue() -> None:
    pool = BlockPool(3, 16)
    pool.publish(pool.allocate(1)[0], 7)
    pool.touch([0])
    pool.release([0])
    assert pool.free == 2  # still held once
    pool.release([0])
    pool.touch(pool.lookup([7]))
    assert pool.allocate(2) == [1, 2] and pool.free == 0 and pool.lookup([7]) == [0]


def test_a_second_copy_waits_behind_the_first() -> None:
    pool = BlockPool(3, 16)
    first, second = pool.allocate(2)
    pool.publish(first, 7)
    pool.publish(second, 7)
    assert pool.lookup([7]) == [first]
    pool.release([first])
    pool.allocate(2)  # the unused one and the first copy
    assert pool.lookup([7]) == [second]


def test_a_block_keeps_its_first_name() -> None:
    pool = BlockPool(2, 16)
    pool.allocate(1)
    pool.publish(0, 7)
    pool.publish(0, 8)
    assert pool.lookup([8]) == [] and pool.lookup([7]) == [0]


def test_blocks_that_cache_nothing_may_go_to_the_head() -> None:
    pool = BlockPool(5, 16, unhashed_first=True)
    blocks = pool.allocate(4)
    pool.publish(blocks[0], 7)
    pool.publish(blocks[1], 8)
    pool.release(blocks)
    assert pool.allocate(5) == [2, 3, 4, 1, 0]


def test_changes_tells_when_something_may_fit_that_did_not() -> None:
    pool = BlockPool(3, 16)
    pool.allocate(2)
    before = pool.changes
    pool.allocate(1)
    assert pool.changes == before
    pool.publish(0, 7)
    pool.publish(0, 7)
    assert pool.changes == before + 1
    pool.release([2])
    assert pool.changes == before + 2


def test_violations_name_the_block() -> None:
    pool = BlockPool(4, 16)
    blocks = pool.allocate(2)
    assert pool.violations([holder(blocks)]) == []
    assert pool.violations([holder([0])]) == ["block 1 is held 1 times, but 0 sequences list it"]
    assert pool.violations([holder([0, 1]), holder([1])]) == ["block 1 is held 1 times, but 2 sequences list it"]
    assert pool.violations([holder([0, 1, 3])]) == ["block 3 is held 0 times, but 1 sequences list it"]


def test_a_block_that_is_in_no_account_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = BlockPool(4, 16)
    pool.allocate(2)
    monkeypatch.delitem(pool._free, 3)
    assert pool.violations([holder([0, 1])]) == ["1 free + 2 held blocks, 4 usable"]


class PoolMachine(RuleBasedStateMachine):
    """The pool against one that keeps plain lists."""

    @initialize(unhashed_first=st.booleans())
    def start(self, unhashed_first: bool) -> None:
        self.pool = BlockPool(6, 4, unhashed_first=unhashed_first)
        self.unhashed_first = unhashed_first
        self.queue = list(range(6))
        self.tables: list[list[int]] = []
        self.names: dict[int, int] = {}
        self.named: list[int] = []  # blocks in the order they were named

    @rule(count=st.integers(0, 4))
    def allocate(self, count: int) -> None:
        if count > len(self.queue):
            with pytest.raises(MemoryError):
                self.pool.allocate(count)
            return
        taken, self.queue = self.queue[:count], self.queue[count:]
        for block in taken:
            if block in self.names:
                del self.names[block]
                self.named.remove(block)
        assert self.pool.allocate(count) == taken
        self.tables.append(taken)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        table = self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1)))
        self.pool.release(table)
        for block in reversed(table):
            if not any(block in other for other in self.tables):
                at_head = self.unhashed_first and block not in self.names
                self.queue.insert(0 if at_head else len(self.queue), block)

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), block_hash=st.integers(0, 3))
    def publish(self, data: st.DataObject, block_hash: int) -> None:
        table = data.draw(st.sampled_from(self.tables))
        for block in table[:1]:
            self.pool.publish(block, block_hash)
            if block not in self.names:
                self.names[block] = block_hash
                self.named.append(block)

    @rule(hashes=st.lists(st.integers(0, 3), max_size=3, unique=True))
    def hit(self, hashes: list[int]) -> None:
        found: list[int] = []
        for block_hash in hashes:
            copies = [block for block in self.named if self.names[block] == block_hash]
            if not copies:
                break
            found.append(copies[0])
        assert self.pool.lookup(hashes) == found
        assert self.pool.idle(found) == sum(block in self.queue for block in found)
        self.pool.touch(found)
        self.queue = [block for block in self.queue if block not in found]
        self.tables.append(found)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "pool"):
            assert self.pool.free == len(self.queue)
            assert self.pool.violations([holder(table) for table in self.tables]) == []


PoolMachine.TestCase.settings = stable(40)
TestPool = PoolMachine.TestCase
