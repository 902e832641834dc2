"""The rules for lengths: bounds, counts, and the spread that the published measurement used."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import TypeAdapter, ValidationError

from arcsim.workloads.lengths import AnyLengths, Lengths
from arcsim.workloads.streams import stream

SPREAD_OF_8 = [50, 114, 179, 243, 307, 371, 436, 500]


def lengths(rule: Any) -> Lengths:
    adapter: TypeAdapter[Any] = TypeAdapter(AnyLengths)
    rule = adapter.validate_python(rule)
    assert isinstance(rule, Lengths)
    return rule


def draw(rule: Any, count: int, seed: int = 0) -> list[int]:
    return lengths(rule).draw(count, stream(seed, "test"))


def test_spread_is_the_one_of_the_measurement() -> None:
    assert draw({"spread": [50, 500], "distinct": 8}, 8) == SPREAD_OF_8


def test_spread_repeats_evenly_and_in_turn() -> None:
    """Caught: repeating each length in a block (50, 50, 50, 50, 114, ...) instead of in turn."""
    drawn = draw({"spread": [50, 500], "distinct": 8}, 32)
    assert drawn == SPREAD_OF_8 * 4
    assert set(Counter(drawn).values()) == {4}


def test_one_of_a_spread_takes_the_mean() -> None:
    assert draw({"spread": [50, 500], "distinct": 8}, 1) == [275]
    assert draw({"spread": [50, 500], "distinct": 1}, 3) == [275] * 3


def test_fewer_than_distinct_are_evenly_spaced() -> None:
    assert draw({"spread": [50, 500], "distinct": 8}, 2) == [50, 500]
    assert draw({"spread": [50, 500], "distinct": 8}, 4) == [50, 200, 350, 500]


def test_distinct_defaults_to_the_count() -> None:
    drawn = draw({"spread": [50, 500]}, 32)
    assert len(set(drawn)) == 32
    assert drawn == sorted(drawn)


@given(st.integers(1, 1000), st.integers(0, 1000), st.integers(1, 64), st.integers(1, 200))
def test_spread_has_its_ends_and_its_distinct_lengths(low: int, width: int, distinct: int, count: int) -> None:
    high = low + width
    if distinct > width + 1:
        with pytest.raises(ValidationError, match="do not fit"):
            lengths({"spread": [low, high], "distinct": distinct})
        return
    drawn = draw({"spread": [low, high], "distinct": distinct}, count)
    assert len(drawn) == count
    assert len(set(drawn)) == min(count, distinct)
    if min(count, distinct) > 1:
        assert (min(drawn), max(drawn)) == (low, high)
    assert max(Counter(drawn).values()) - min(Counter(drawn).values()) <= 1
    gaps = np.diff(sorted(set(drawn)))
    assert not len(gaps) or gaps.max() - gaps.min() <= 1


positive = st.integers(1, 5000)
variation = st.floats(0.05, 5)
clipped = st.builds(
    lambda mean, cv, low, width: {"mean": mean, "cv": cv, "min": low, "max": low + width},
    positive, variation, positive, positive,
)


@given(clipped, st.sampled_from(["lognormal", "gamma"]), st.integers(1, 300), st.integers(0, 2**40))
def test_clipped_lengths_stay_within_bounds(bounds: dict[str, Any], kind: str, count: int, seed: int) -> None:
    drawn = draw({kind: bounds}, count, seed)
    assert len(drawn) == count
    assert all(bounds["min"] <= length <= bounds["max"] for length in drawn)
    assert drawn == draw({kind: bounds}, count, seed)


@given(positive, positive, st.integers(1, 300), st.integers(0, 2**40))
def test_uniform_lengths_stay_within_bounds(low: int, width: int, count: int, seed: int) -> None:
    drawn = draw({"uniform": [low, low + width]}, count, seed)
    assert len(drawn) == count
    assert all(type(length) is int and low <= length <= low + width for length in drawn)


def test_uniform_reaches_both_ends() -> None:
    assert set(draw({"uniform": [3, 5]}, 200)) == {3, 4, 5}


@pytest.mark.parametrize("kind", ["lognormal", "gamma"])
@pytest.mark.parametrize("cv", [0.3, 1.0])
def test_mean_and_variation_are_those_asked_for(kind: str, cv: float) -> None:
    """Caught: the lognormal without the shift of its mean (`- sigma^2 / 2`)."""
    drawn = np.array(draw({kind: {"mean": 800, "cv": cv}}, 40_000))
    assert drawn.mean() == pytest.approx(800, rel=0.02)
    assert drawn.std() / drawn.mean() == pytest.approx(cv, rel=0.04)


def test_quantiles_are_those_of_the_table() -> None:
    table = {0: 10, 0.5: 200, 0.9: 1000, 1: 4000}
    drawn = np.array(draw({"quantiles": table}, 40_000))
    assert drawn.min() >= 10 and drawn.max() <= 4000
    for probability, length in table.items():
        assert np.mean(drawn <= length) == pytest.approx(probability, abs=0.01)


def test_a_longer_draw_begins_like_a_shorter_one() -> None:
    for rule in ({"uniform": [1, 900]}, {"lognormal": {"mean": 300, "cv": 2}}, {"gamma": {"mean": 300, "cv": 0.5}},
                 {"quantiles": {0: 1, 1: 900}}):
        assert draw(rule, 50)[:10] == draw(rule, 10)


def test_a_saved_rule_reads_back() -> None:
    for rule in (64, {"spread": [1, 5]}, {"quantiles": {0: 10, 0.5: 20, 1: 30}}, {"gamma": {"mean": 3, "cv": 1}}):
        assert lengths(lengths(rule).model_dump(mode="json")) == lengths(rule)


@pytest.mark.parametrize(("rule", "reason"), [
    (0, "greater than 0"),
    (-5, "greater than 0"),
    (2.5, "one of fixed, uniform, spread"),
    (True, "one of fixed, uniform, spread"),
    ("long", "one of fixed, uniform, spread"),
    ({"normal": 3}, "one of fixed, uniform, spread"),
    ({"fixed": 3, "distinct": 2}, "not permitted"),
    ({"uniform": [9, 3]}, "upside down"),
    ({"uniform": ["1", 3]}, "valid integer"),
    ({"uniform": [1]}, "required"),
    ({"gamma": {"mean": 3, "cv": 0}}, "greater than 0"),
    ({"gamma": {"mean": 3, "cv": 1, "min": 9, "max": 3}}, "upside down"),
    ({"quantiles": {0: 1, 0.5: 3}}, "quantiles 0 .* and 1"),
    ({"quantiles": {0: 5, 1: 3}}, "cannot be shorter"),
    ({"quantiles": {0: 5, 2: 7}}, "less than or equal to 1"),
])
def test_impossible_rules_are_refused(rule: Any, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        lengths(rule)
