"""Token strings as runs: the same as a plain list, at the cost of their pieces."""

import pytest
from hypothesis import given, strategies as st

from arcsim.policies.tokens import MAX_PIECE, Tokens, as_tokens, content_base

from .drawing import stable

runs = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), max_size=12)
"""`(first, length)`: ids from a small range, so that neighbours often continue each other."""


def expanded(parts: list[tuple[int, int]]) -> list[int]:
    return [first + offset for first, length in parts for offset in range(length)]


def of_runs(parts: list[tuple[int, int]]) -> Tokens:
    tokens = Tokens()
    for first, length in parts:
        tokens.extend_run(first, length)
    return tokens


@stable(100)
@given(runs, st.integers(0, 60), st.integers(0, 60))
def test_any_stretch_is_that_of_the_list(parts: list[tuple[int, int]], start: int, length: int) -> None:
    tokens, ids = of_runs(parts), expanded(parts)
    start, stop = min(start, len(ids)), min(start + length, len(ids))
    assert len(tokens) == len(ids)
    assert tokens.ids(start, stop) == ids[start:stop]


@stable(300)
@given(runs, runs, st.data())
def test_keys_are_equal_exactly_when_the_tokens_are(a: list[tuple[int, int]], b: list[tuple[int, int]],
                                                    data: st.DataObject) -> None:
    """However the runs were pieced together. (Mutation tried: neighbouring runs are not joined.)"""
    x, y = expanded(a), expanded(b)
    length = data.draw(st.integers(0, min(len(x), len(y))))
    i, j = data.draw(st.integers(0, len(x) - length)), data.draw(st.integers(0, len(y) - length))
    same = x[i:i + length] == y[j:j + length]
    assert (of_runs(a).key(i, i + length) == of_runs(b).key(j, j + length)) is same
    assert Tokens(x).key(i, i + length) == of_runs(a).key(i, i + length)


@stable(100)
@given(runs)
def test_ids_ranges_and_single_tokens_add_up_to_the_same(parts: list[tuple[int, int]]) -> None:
    ranges = Tokens()
    for first, length in parts:
        ranges.extend(range(first, first + length))
    every = len(expanded(parts))
    assert ranges.key(0, every) == as_tokens(expanded(parts)).key(0, every)
    assert list(ranges.runs(0, every)) == list(of_runs(parts).runs(0, every))


def test_a_long_prompt_is_one_run() -> None:
    tokens = Tokens.of_pieces([("a book", 120_000), ("a question", 30)])
    assert len(tokens) == 120_030 and len(list(tokens.runs(0, len(tokens)))) == 2
    assert len(tokens.key(64, 128)) == 2


def test_equal_content_is_equal_from_its_first_token_on() -> None:
    short, long = Tokens.of_pieces([("system", 40), ("x", 9)]), Tokens.of_pieces([("system", 64)])
    assert short.key(0, 40) == long.key(0, 40) and short.key(0, 49) != long.key(0, 49)
    assert Tokens.of_pieces([("system", 8), ("system", 8)]).ids(0, 8) == long.ids(0, 8)


def test_contents_are_far_apart_and_the_same_in_every_process() -> None:
    """The constant came from another process: 40 bits of blake2b over the content's repr, times the longest piece."""
    bases = {content_base(content) for content in (1, "1", 2, "prompt of a", "output of a")}
    assert len(bases) == 5 and all(base % MAX_PIECE == 0 for base in bases)
    assert content_base("x") == 0x332F830F15 << 20


def test_beyond_the_end_is_an_error() -> None:
    with pytest.raises(IndexError, match="of 3"):
        Tokens([1, 2, 3]).ids(2, 4)
    with pytest.raises(IndexError):
        Tokens().key(0, 1)
    assert Tokens().key(0, 0) == ()


def test_tokens_are_taken_as_they_are_and_ids_are_wrapped() -> None:
    tokens = Tokens([5])
    assert as_tokens(tokens) is tokens and as_tokens([5, 6]).ids(0, 2) == [5, 6]
    stepped = Tokens()
    stepped.extend(range(0, 6, 2))
    assert stepped.ids(0, 3) == [0, 2, 4]
