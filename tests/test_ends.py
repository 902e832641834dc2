"""When outputs are complete, which no policy knows."""

import pytest
from hypothesis import given, strategies as st

from arcsim.engine.ends import NEVER, Ends
from arcsim.policies.base import Chunk, DecodeBatch, EmulatedSample, Forward, Gauges, Sequence, Step

from .drawing import stable


def joined(ends: Ends, batch: DecodeBatch, id: str, output: int, generated: int = 1) -> Sequence:
    sequence = Sequence(id, [1, 2, 3], 999)
    ends.expect(sequence, output)
    rejoin(batch, sequence, generated)
    return sequence


def rejoin(batch: DecodeBatch, sequence: Sequence, generated: int) -> None:
    sequence.append(sequence.emulate(generated))
    sequence.computed = sequence.num_tokens - 1
    batch.join(sequence)


def decode(ends: Ends, batch: DecodeBatch, count: int = 1) -> list[Sequence]:
    ends.follow(batch, batch.take_journal())
    stopped = ends.stopped(Step(Gauges(0, 0), [Forward(decode=batch)]), count)
    batch.advance(EmulatedSample(lambda: iter(batch), count))
    return stopped


@pytest.mark.parametrize(("output", "max_tokens", "length"), [(5, 9, 5), (9, 5, 5), (0, 9, 1), (3, 0, 1)])
def test_an_output_ends_by_itself_or_at_max_tokens_but_not_before_its_first(
    output: int, max_tokens: int, length: int
) -> None:
    ends, sequence = Ends(), Sequence("a", [1], max_tokens)
    ends.expect(sequence, output)
    assert ends.length(sequence) == length and not ends.complete(sequence)
    sequence.append(sequence.emulate(length))
    assert ends.complete(sequence)


def test_members_stop_at_their_own_step() -> None:
    ends, batch = Ends(), DecodeBatch()
    short, long = joined(ends, batch, "short", 3), joined(ends, batch, "long", 5)
    ends.follow(batch, batch.take_journal())
    assert ends.nearest(batch) == 2
    assert decode(ends, batch) == [] and decode(ends, batch) == [short]
    batch.leave(short)
    assert decode(ends, batch) == [] and ends.nearest(batch) == 1
    assert decode(ends, batch) == [long]


def test_who_is_run_on_is_named_again_at_every_token() -> None:
    """An engine that frees a step late: the tokens past the end are its waste."""
    ends, batch = Ends(), DecodeBatch()
    late = joined(ends, batch, "late", 2)
    assert [decode(ends, batch) for _ in range(3)] == [[late]] * 3 and ends.nearest(batch) == 1
    batch.leave(late)
    assert ends.nearest(batch) == NEVER


def test_several_tokens_at_once_reach_the_same_end() -> None:
    ends, batch = Ends(), DecodeBatch()
    one = joined(ends, batch, "one", 6)
    ends.follow(batch, batch.take_journal())
    assert ends.nearest(batch) == 5
    assert decode(ends, batch, 4) == [] and decode(ends, batch) == [one]


def test_who_left_and_came_back_is_named_once() -> None:
    """Its first note says the same tick as its second: it lost a step and gained the token of its re-prefill.
    (Mutation tried: a stale note is not told from a new one.)"""
    ends, batch = Ends(), DecodeBatch()
    other, moved = joined(ends, batch, "other", 9), joined(ends, batch, "moved", 5)
    decode(ends, batch)
    batch.leave(moved)
    decode(ends, batch)
    rejoin(batch, moved, 1)
    assert [decode(ends, batch), decode(ends, batch)] == [[], [moved]]
    batch.leave(moved)
    assert not ends.complete(other)


def test_an_end_of_who_left_does_not_count() -> None:
    """(Mutation tried: the calendar keeps the ends of those that left.)"""
    ends, batch = Ends(), DecodeBatch()
    gone, stays = joined(ends, batch, "gone", 3), joined(ends, batch, "stays", 9)
    decode(ends, batch)
    batch.leave(gone)
    assert ends.nearest(batch) == 7
    assert [decode(ends, batch) for _ in range(7)] == [[]] * 6 + [[stays]]


def test_explicit_rows_stop_with_the_token_they_sample() -> None:
    ends, first, part, last = Ends(), Sequence("a", [1, 2], 9), Sequence("b", [1, 2], 9), Sequence("c", [1, 2], 9)
    for sequence, output in ((first, 1), (part, 1), (last, 2)):
        ends.expect(sequence, output)
    step = Step(Gauges(0, 0), [Forward([Chunk.rest(first), Chunk.rest(part, limit=1), Chunk.rest(last)])])
    assert ends.stopped(step, 1) == [first]


plans = st.lists(st.tuples(st.integers(2, 12), st.integers(0, 8), st.integers(0, 3), st.integers(0, 4)),
                 min_size=1, max_size=5)
"""Of each sequence: output, when it joins, after how many steps it leaves for how many (0: it stays)."""


@stable(150)
@given(plans)
def test_the_calendar_is_the_same_as_looking_at_every_row(plans: list[tuple[int, int, int, int]]) -> None:
    """Sequences come, leave, come back with one more token and end; `nearest` is never too late."""
    ends, batch = Ends(), DecodeBatch()
    sequences = [Sequence(f"s{i}", [1, 2], 999) for i in range(len(plans))]
    for sequence, (output, _, _, _) in zip(sequences, plans, strict=True):
        ends.expect(sequence, output)
    for now in range(40):
        for sequence, (output, start, stay, away) in zip(sequences, plans, strict=True):
            leaves = start + stay
            if away and now == leaves and sequence in batch:
                batch.leave(sequence)
            back = away and now == leaves + away and 0 < sequence.generated < output - 1 and sequence not in batch
            if now == start or back:
                rejoin(batch, sequence, 1)
        if not batch.members:
            continue
        ends.follow(batch, batch.take_journal())
        until = min(max(ends.length(member) - member.generated, 1) for member in batch)
        assert 1 <= ends.nearest(batch) <= until
        due = {member for member in batch if member.generated + 1 >= ends.length(member)}
        stopped = decode(ends, batch)
        assert len(stopped) == len(due) and set(stopped) == due
        for member in stopped:
            batch.leave(member)
