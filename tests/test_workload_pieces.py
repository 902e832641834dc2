"""Pieces of content, and what prompts have in common, against prompts written out token by token."""

from math import ceil

import pytest
from hypothesis import given, strategies as st

from arcsim.workloads.pieces import Prompt, cut, scale_up, scaled
from arcsim.workloads.prefix_tree import PrefixTree

prompts = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=5).map(tuple)


def written_out(prompt: Prompt) -> list[tuple[int | str, int]]:
    return [(name, place) for name, length in prompt for place in range(length)]


def in_common(one: Prompt, other: Prompt) -> int:
    pairs = zip(written_out(one), written_out(other), strict=False)
    return next((place for place, (mine, yours) in enumerate(pairs) if mine != yours),
                min(len(written_out(one)), len(written_out(other))))


@given(st.lists(prompts, min_size=1, max_size=12))
def test_the_tree_finds_the_longest_common_beginning(seen: list[Prompt]) -> None:
    """Caught: stopping at a piece of the same content but another length, where its tokens still match."""
    tree = PrefixTree()
    for place, prompt in enumerate(seen):
        expected = max((in_common(prompt, earlier) for earlier in seen[:place]), default=0)
        assert tree.add(prompt).tokens == expected


def test_a_tree_counts_whole_pieces() -> None:
    tree = PrefixTree()
    assert tree.add((("a", 4), ("b", 4))).pieces == 0
    assert tree.add((("a", 4), ("b", 4), ("c", 1))).pieces == 2
    assert tree.add((("a", 4), ("c", 1))).pieces == 1
    assert tree.add((("b", 4),)).pieces == 0


@given(prompts, st.integers(1, 30))
def test_a_cut_is_the_beginning(prompt: Prompt, tokens: int) -> None:
    assert written_out(cut(prompt, tokens)) == written_out(prompt)[:tokens]


@given(st.lists(prompts, min_size=2, max_size=2), st.floats(0.05, 4))
def test_scaling_keeps_the_total_and_common_pieces(pair: list[Prompt], factor: float) -> None:
    one, other = (scaled(prompt, factor) for prompt in pair)
    total = sum(length for _, length in pair[0])
    assert sum(length for _, length in one) == max(1, ceil(round(total * factor, 9)))
    same = next((i for i, (mine, yours) in enumerate(zip(*pair, strict=False)) if mine != yours), min(map(len, pair)))
    head = sum(length for _, length in pair[0][:same])
    if head:
        assert in_common(one, other) >= min(scale_up(head, factor), sum(length for _, length in other))


@pytest.mark.parametrize(("tokens", "factor", "expected"), [(100, 1.1, 110), (31, 0.1, 4), (1, 0.001, 1), (7, 2, 14)])
def test_scaling_up_rounds_up_but_not_noise(tokens: int, factor: float, expected: int) -> None:
    assert scale_up(tokens, factor) == expected
