"""A sequence, the clock of its decode batch, and the chunks that are cut from it."""

import pytest
from hypothesis import given, strategies as st

from arcsim.policies.base import Chunk, DecodeBatch, EmulatedSample, Forward, Sequence, Step, Tokens
from arcsim.policies.sequence import STILL
from arcsim.policies.step import Gauges
from arcsim.policies.tokens import content_base

from .drawing import stable


def started(id: str, prompt: int = 5, generated: int = 1, max_tokens: int = 99) -> Sequence:
    """A sequence with everything computed but the last of `generated` tokens."""
    sequence = Sequence(id, Tokens.of_pieces([(id, prompt)]), max_tokens)
    sequence.append(sequence.emulate(generated))
    sequence.computed = prompt + generated - 1
    return sequence


def test_a_new_sequence_has_all_of_its_prompt_to_compute() -> None:
    sequence = Sequence("a", [7, 8, 9], 4, arrival=1.5, priority=2)
    assert (sequence.num_tokens, sequence.computed, sequence.uncomputed, sequence.generated) == (3, 0, 3, 0)
    assert not sequence.decoding and sequence.block_table == [] and sequence.clock is STILL
    sequence.computed = 2
    assert sequence.uncomputed == 1 and not sequence.decoding  # nothing was sampled yet
    assert repr(sequence) == "<a: 3+0 tokens, 2 computed>"


def test_emulated_output_is_derived_when_asked_for() -> None:
    sequence = Sequence("a", [7, 8, 9], 9)
    sequence.append(sequence.emulate(2))
    sequence.append(sequence.emulate(1))
    base = content_base("output of a")
    assert sequence.num_tokens == 6 and sequence.generated == 3
    assert sequence.tokens.ids(0, 6) == [7, 8, 9, base, base + 1, base + 2]
    sequence.append(sequence.emulate(1))
    assert sequence.tokens.ids(5, 7) == [base + 2, base + 3]


def test_real_ids_are_kept() -> None:
    sequence = Sequence("a", [7], 9)
    sequence.append([100])
    sequence.append([102])
    assert sequence.tokens.ids(0, 3) == [7, 100, 102] and sequence.generated == 2


def test_preemption_drops_the_kv_and_keeps_the_tokens() -> None:
    sequence = started("a", 5, 3)
    sequence.cached = 4
    sequence.drop_kv()
    assert (sequence.computed, sequence.cached, sequence.preemptions) == (0, 0, 1)
    assert (sequence.num_tokens, sequence.generated, sequence.uncomputed) == (8, 3, 8)


def test_members_advance_with_their_batch_and_stop_when_they_leave() -> None:
    batch, a, b = DecodeBatch(), started("a"), started("b", 9, 2)
    batch.join(a)
    batch.advance(EmulatedSample(lambda: iter(batch), 3))
    batch.join(b)
    batch.advance(EmulatedSample(lambda: iter(batch)))
    assert (a.generated, a.computed, b.generated, b.computed) == (5, 9, 3, 11)
    assert batch.context_tokens == 20 and list(batch) == [a, b] and a in batch
    batch.leave(a)
    batch.advance(EmulatedSample(lambda: iter(batch)))
    assert (a.generated, a.computed, b.generated) == (5, 9, 4) and a not in batch
    assert batch.context_tokens == b.computed == 12


def test_the_journal_says_who_came_and_went_at_which_tick() -> None:
    batch, a, b = DecodeBatch(), started("a"), started("b")
    batch.join(a)
    batch.advance(EmulatedSample(lambda: iter(batch), 2))
    batch.join(b)
    batch.leave(a)
    assert [change[1:4] for change in batch.take_journal()] == [(a, 0, True), (b, 2, True), (a, 2, False)]
    assert batch.take_journal() == []


def test_only_who_has_one_token_left_can_join() -> None:
    fresh = Sequence("a", [1, 2], 5)
    with pytest.raises(ValueError, match=r"<a: 2\+0 tokens, 0 computed> cannot join a decode batch: 2 tokens are not"):
        DecodeBatch().join(fresh)


def test_a_batch_takes_the_ids_that_a_model_sampled() -> None:
    batch, a, b = DecodeBatch(), Sequence("a", [1], 9), Sequence("b", [2], 9)
    for sequence, first in ((a, 10), (b, 20)):
        sequence.computed = 1
        sequence.append([first])
        batch.join(sequence)
    batch.advance({a: [11], b: [21]})
    batch.advance({a: [15], b: [25]})
    assert a.tokens.ids(0, 4) == [1, 10, 11, 15] and b.tokens.ids(0, 4) == [2, 20, 21, 25]


moves = st.lists(st.tuples(st.sampled_from(["join", "leave", "tick", "drop", "refill"]), st.integers(0, 3),
                           st.integers(1, 4)), max_size=40)


@stable(200)
@given(moves)
def test_a_batch_is_the_same_as_counting_each_row(moves: list[tuple[str, int, int]]) -> None:
    """However sequences come and go, the clock gives what counting every row at every step would.
    (Mutation tried: the context does not shrink when one leaves.)"""
    batch = DecodeBatch()
    sequences = [started(f"s{i}", 3 + i, 1 + i) for i in range(4)]
    computed, generated = [s.computed for s in sequences], [s.generated for s in sequences]
    for move, place, count in moves:
        sequence = sequences[place]
        if move == "tick":
            batch.advance(EmulatedSample(lambda: iter(batch), count))
            for i, member in enumerate(sequences):
                computed[i] += count * (member in batch)
                generated[i] += count * (member in batch)
        elif move == "join" and sequence not in batch and sequence.decoding:
            batch.join(sequence)
        elif move in ("leave", "drop") and sequence in batch:
            batch.leave(sequence)
            if move == "drop":
                sequence.drop_kv()
                computed[place] = 0
        elif move == "refill" and not sequence.decoding:
            sequence.computed = computed[place] = sequence.num_tokens - 1
        assert [s.computed for s in sequences] == computed and [s.generated for s in sequences] == generated
        assert batch.context_tokens == sum(s.computed for s in batch)
        assert all(len(s.tokens) == s.num_tokens for s in sequences)


def test_a_chunk_is_what_is_left_or_what_the_limit_leaves() -> None:
    sequence = Sequence("a", range(10), 5)
    whole = Chunk.rest(sequence)
    assert (whole.start, whole.length, whole.end, whole.samples, whole.decode) == (0, 10, 10, True, False)
    part = Chunk.rest(sequence, limit=4)
    assert (part.length, part.samples) == (4, False)
    assert Chunk.rest(sequence, limit=10).samples
    sequence.computed = 4
    assert (Chunk.rest(sequence, limit=99).start, Chunk.rest(sequence).attended) == (4, 6 * 4 + 21)


def test_a_decode_row_is_one_token_of_who_was_generating() -> None:
    assert Chunk.rest(started("a")).decode
    admitted = started("b")
    assert not Chunk.rest(admitted, prefill=True).decode  # an admission prefills, even a single token
    fresh = Sequence("c", [1], 5)
    assert not Chunk.rest(fresh).decode


@stable(100)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 9)), max_size=6), st.integers(0, 4), st.booleans())
def test_totals_are_the_sums_over_the_rows(parts: list[tuple[int, int]], rows: int, padded: bool) -> None:
    """Of two forwards: explicit chunks, some with a hit, and a standing decode batch beside others."""
    chunks = []
    for i, (length, cached) in enumerate(parts):
        sequence = Sequence(f"p{i}", range(length + cached + 1), 9)
        sequence.computed = cached
        chunks.append(Chunk.rest(sequence, cached=cached, limit=length, prefill=True))
    batch = DecodeBatch()
    for i in range(rows):
        batch.join(started(f"d{i}", 4 + i, 2))
    lone = Forward([Chunk.rest(started("lone"))])
    forwards = (Forward(tuple(chunks), batch, 77 if padded else None), lone)
    every = [chunk for forward in forwards for chunk in forward.all_chunks()]
    totals = Step(Gauges(0, 0), forwards).totals
    prefills = [chunk for chunk in every if not chunk.decode]
    assert (totals.forwards, totals.width) == (2, len(every)) and totals.width == sum(f.width for f in forwards)
    assert (totals.prefill_seqs, totals.decode_seqs) == (len(prefills), len(every) - len(prefills))
    assert totals.prefill_tokens == sum(chunk.length for chunk in prefills)
    assert totals.padded_tokens == (77 if padded else totals.prefill_tokens)
    assert totals.cached == sum(chunk.cached for chunk in prefills)
    assert totals.context == sum(chunk.end for chunk in every)
    assert totals.attended == sum(chunk.attended for chunk in prefills)
    assert totals.sampling == sum(chunk.samples for chunk in every)
    assert totals.sampling == len(list(Step(Gauges(0, 0), forwards).sampling()))


def test_a_step_settles_its_chunks_and_its_batch() -> None:
    batch, a = DecodeBatch(), started("a")
    batch.join(a)
    b, c = Sequence("b", range(6), 5), Sequence("c", range(6), 5)
    step = Step(Gauges(3, 0), [Forward([Chunk.rest(b), Chunk.rest(c, limit=2)], batch)])
    sample = EmulatedSample(step.sampling)
    assert list(sample) == [a, b] and len(sample) == 2 and c not in sample and list(sample[b]) == list(b.emulate(1))
    step.settle(sample)
    assert (a.generated, b.computed, b.generated, c.computed, c.generated) == (2, 6, 1, 2, 0)
    assert b.decoding and not c.decoding and not step.empty and Step(Gauges(0, 0)).empty
