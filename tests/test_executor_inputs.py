"""From the rows of a step to tensors: everything is addressed per row, nothing is padded, and wrong blocks are told.

Tried by hand, each fails here: positions counted from 0 in each chunk, keys' lengths without the new tokens, the first
token of a chunk taken for its last, a block table that is kept though the policy changed it.
"""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

torch = pytest.importorskip("torch", reason="the executor needs torch: pip install 'arcsim[executor]'")
pytest.importorskip("transformers", reason="the executor needs transformers: pip install 'arcsim[executor]'")

from arcsim.engine.errors import BackendFailed, PolicyError
from arcsim.executor.in_flight import places
from arcsim.executor.inputs import InputBuilder
from arcsim.executor.own_pages import OwnPages
from arcsim.executor.tables import BlockTables
from arcsim.executor.tokens import Vocabulary, greedy, ids_of
from arcsim.policies.base import Chunk, DecodeBatch, Forward, Sequence, Tokens
from arcsim.policies.kv.dense_cache import DenseCache

from .executing import sequence

VOCABULARY = Vocabulary(100)


def _builder(block_size: int = 4, blocks: int = 32) -> InputBuilder:
    return InputBuilder(VOCABULARY, blocks, block_size, torch.device("cpu"))


def test_a_mixed_step() -> None:
    """A decode row of a standing batch, a chunk on top of cached tokens, and a whole prompt."""
    decoding = sequence("d", 5, [7, 3, 9])
    decoding.append([42, 43])
    decoding.computed = 6
    batch = DecodeBatch()
    batch.join(decoding)
    chunked, whole = sequence("c", 12, [0, 1, 2], computed=4), sequence("w", 2, [31])
    inputs = _builder().build(Forward((Chunk(chunked, 4, 6, 4, False), Chunk(whole, 0, 2)), batch))
    rows = inputs.rows
    assert inputs.positions.tolist() == [[6, 4, 5, 6, 7, 8, 9, 0, 1]]
    assert inputs.slots.tolist() == [3 * 4 + 2, 4, 5, 6, 7, 8, 9, 31 * 4, 31 * 4 + 1]
    assert inputs.ids[0, 0] == 43
    assert inputs.ids[0, 1:].tolist() == [
        *VOCABULARY.of(ids_of(chunked.tokens, 4, 10)), *VOCABULARY.of(ids_of(whole.tokens, 0, 2)),
    ]
    assert (rows.query_lens, rows.key_lens, rows.max_q, rows.max_k) == ([1, 6, 2], [7, 10, 2], 6, 10)
    assert rows.cu_seqlens_q.tolist() == [0, 1, 7, 9]
    assert rows.cu_seqlens_k.tolist() == [0, 7, 17, 19]
    assert rows.seqused_k.tolist() == [7, 10, 2]
    assert rows.block_table.tolist() == [[7, 3, 0], [0, 1, 2], [31, 0, 0]]
    assert (inputs.last.tolist(), inputs.sampling, inputs.decodes) == ([0, 8], [decoding, whole], False)
    for tensor in (rows.cu_seqlens_q, rows.cu_seqlens_k, rows.seqused_k, rows.block_table):
        assert tensor.dtype == torch.int32
    for tensor in (inputs.ids, inputs.positions, inputs.slots, inputs.last):
        assert tensor.dtype == torch.int64


def test_a_pure_decode_step() -> None:
    made = [sequence(str(row), 9, [row * 3, row * 3 + 1, row * 3 + 2], computed=8) for row in range(3)]
    inputs = _builder().build(Forward([Chunk(each, 8, 1) for each in made]))
    assert inputs.decodes
    assert inputs.ids.shape == (1, 3)
    assert inputs.slots.tolist() == [2 * 4, 5 * 4, 8 * 4]


@pytest.mark.parametrize(("blocks", "told"), [
    ([1, 2], "has 2 blocks in its table and the step needs 3"),
    ([1, 2, 32], "lists block 32, the KV cache has blocks 0 to 31"),
    ([1, -1, 2], "lists block -1, the KV cache has blocks 0 to 31"),
])
def test_blocks_that_are_not_there(blocks: list[int], told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        _builder().build(Forward([Chunk(sequence("a", 9, blocks), 0, 9)]))


def test_two_tokens_in_one_place() -> None:
    rows = [Chunk(sequence("a", 4, [5]), 0, 4), Chunk(sequence("b", 4, [5]), 0, 4)]
    with pytest.raises(PolicyError, match="the same place in the KV cache"):
        _builder().build(Forward(rows))


def test_a_shared_prefix_may_be_read_by_both() -> None:
    rows = [Chunk(sequence("a", 8, [5, 6], computed=4), 4, 4), Chunk(sequence("b", 8, [5, 7], computed=4), 4, 4)]
    inputs = _builder().build(Forward(rows))
    assert inputs.rows.block_table.tolist() == [[5, 6], [5, 7]]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["grow", "swap", "restart"]), st.integers(0, 30)),
                max_size=30))
def test_tables_follow_whatever_a_policy_does(changes: list[tuple[str, str, int]]) -> None:
    """Blocks that are added, exchanged in place, or given anew after a preemption."""
    tables, made = BlockTables(64, 1), {name: sequence(name, 1, [1]) for name in "abc"}
    for name, change, number in changes:
        changed = made[name]
        if change == "grow":
            changed.block_table += [number, number + 1]
        elif change == "swap":
            changed.block_table[number % len(changed.block_table)] = number
        else:
            changed.block_table = [number, *changed.block_table[:number % 3]]
        everyone = list(made.values())
        lengths = [len(each.block_table) for each in everyone]
        found = tables.of(everyone, lengths)
        for row, each in enumerate(everyone):
            assert found[row, :lengths[row]].tolist() == each.block_table
            assert not found[row, lengths[row]:].any()


# Tokens


def test_equal_content_is_equal_tokens_and_sampled_tokens_stay() -> None:
    one, other = (Tokens.of_pieces((("shared", 50), (own, 5))) for own in "ab")
    first, second = (VOCABULARY.of(ids_of(tokens, 0, 55)) for tokens in (one, other))
    assert (first[:50] == second[:50]).all()
    assert (first[50:] != second[50:]).any()
    assert len(set(first)) > 30
    assert ((first >= 0) & (first < 100)).all()
    assert VOCABULARY.of(np.arange(100)).tolist() == list(range(100))


def test_a_prompt_that_continues_with_sampled_tokens_is_read_as_they_were() -> None:
    """A prefix hit over prompt and output must see what was computed: the ids come back through the sequence."""
    made = Sequence("a", Tokens.of_pieces((("p", 6),)), 8)
    made.append([7])
    made.append([99])
    before = VOCABULARY.of(ids_of(made.tokens, 0, 8))
    again = Sequence("b", Tokens(made.tokens.ids(0, 8)), 8)
    assert VOCABULARY.of(ids_of(again.tokens, 0, 8)).tolist() == before.tolist()
    assert before[6:].tolist() == [7, 99]
    assert ids_of(made.tokens, 5, 8).tolist() == made.tokens.ids(5, 8)


def test_greedy_takes_the_first_of_equal_tokens() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0], [5.0, 2.0, 5.0]])
    assert greedy(logits).tolist() == [1, 0]
    assert greedy(logits.bfloat16()).tolist() == [1, 0]
    assert greedy(torch.empty(0, 3)).tolist() == []


# Steps in flight, and policies without block tables


def test_a_token_in_flight_is_taken_from_the_device() -> None:
    """The step ahead has sampled a sequence's last token, but nobody has seen it yet."""
    one, other = sequence("a", 5, [1, 2], computed=5), sequence("b", 3, [4], computed=3)
    flying = places([[([other, one], torch.tensor([11, 12]))], [([one], torch.tensor([77]))]])
    inputs = _builder().build(Forward([Chunk(one, 5, 1), Chunk(other, 3, 1)]), flying)
    assert inputs.ids.tolist() == [[77, 11]]
    assert inputs.positions.tolist() == [[5, 3]]
    with pytest.raises(PolicyError, match="computes tokens 5 to 6, 5 are known"):
        _builder().build(Forward([Chunk(one, 5, 1)]))


def test_drafts_are_refused() -> None:
    with pytest.raises(BackendFailed, match="no draft model: turn the policy's speculation off"):
        _builder().build(Forward([Chunk(sequence("a", 5, [1, 2], computed=4), 4, 1, decode=True, drafts=2)]))


def test_pages_follow_the_ledger_of_a_policy_without_block_tables() -> None:
    ledger, one, other = DenseCache(), sequence("a", 9, []), sequence("b", 9, [])
    pages = OwnPages(ledger, 4, 4)
    ledger.hold(one, 9)
    assert len(pages.of(one, 9)) == 3
    with pytest.raises(BackendFailed, match="of 4 blocks of 4 tokens is full: .* needs 2 more, 1 are free"):
        pages.of(other, 5)
    ledger.hold(one, 4)
    pages.release()
    assert set(pages.of(one, 4)).isdisjoint(pages.of(other, 9))
    ledger.drop(one)
    pages.release()
    ledger.hold(other, 9)
    assert len(pages.of(other, 16)) == 4
