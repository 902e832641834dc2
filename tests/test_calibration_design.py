"""Which steps a calibration runs, in which order, and how their times become columns."""

import pytest
from hypothesis import given, settings, strategies as st

from arcsim.experiment.calibration_design import Limits, Point, design, ladder
from arcsim.experiment.calibration_steps import Sample, rounds, spread_of, step_of, table_of
from arcsim.experiment.errors import UserError
from arcsim.policies.totals import Totals
from arcsim.sim.measured import measured_steps

limits = st.builds(Limits, st.integers(1, 70), st.integers(16, 600), st.integers(32, 1500))


@settings(deadline=None)
@given(limits)
def test_points_stay_within_the_limits(found: Limits) -> None:
    """Each once, decode steps and steps with prefill among them."""
    points = design(found)
    assert len(set(points)) == len(points)
    for point in points:
        assert all(start >= 0 and length >= 1 and start + length <= found.context for start, length in point.rows)
        assert sum(start + length for start, length in point.rows) <= found.pool
        assert point.decode + point.prompts <= found.rows + 1 and point.prompts * point.length <= found.tokens
    assert any(not point.prompts for point in points) and any(not point.decode for point in points)


def test_what_the_default_covers() -> None:
    points = design(Limits(32, 512, 1024))
    assert {point.decode for point in points if not point.prompts} == {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}
    assert {point.context for point in points if point.decode == 3} == {32, 256, 512, 1024}
    assert {4, 64, 512} <= {point.length for point in points if point.prompts == 1 and not point.decode}
    assert any(point.start and point.length > 100 for point in points)
    assert sum(1 for point in points if point.decode and point.prompts) >= 20


def test_more_tokens_than_a_sequence_has_are_those_of_several() -> None:
    """As where everybody arrives at once: 32 prompts in one pass."""
    totals = {(point.prompts, point.prompts * point.length) for point in design(Limits(32, 3072, 256))}
    assert {(2, 512), (8, 2048), (12, 3072), (32, 1024), (32, 3072)} <= totals


@pytest.mark.parametrize(("top", "values"), [(1, [1]), (6, [1, 2, 3, 4, 6]), (11, [1, 2, 3, 4, 6, 8, 11])])
def test_ladder(top: int, values: list[int]) -> None:
    assert ladder(top, halves=True) == values


@pytest.mark.parametrize(("given", "said"), [
    ((0, 512, 1024), "--rows 0: at least 1"), ((1, 8, 1024), "--tokens 8: at least 16"),
    ((1, 16, 8), "--context 8: at least 32"),
])
def test_limits_too_small(given: tuple[int, int, int], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Limits(*given)


def test_a_point_as_a_step() -> None:
    """Rows have blocks of their own, as many as they need; what the step asks is what the point says."""
    point = Point(decode=3, context=33, prompts=2, start=16, length=20)
    step = step_of(point, 16)
    blocks = [block for chunk in step.forwards[0].chunks for block in chunk.sequence.block_table]
    assert sorted(blocks) == list(range(1, point.blocks(16) + 1)) and len(blocks) == 3 * 3 + 2 * 3
    totals = step.totals
    assert (totals.decode_seqs, totals.prefill_seqs, totals.prefill_tokens) == (3, 2, 40)
    assert (totals.context, totals.attended) == (3 * 33 + 2 * 36, 2 * (16 * 20 + 210))
    assert str(point) == "3 decode rows of 33 and 2 x 20 prefill tokens behind 16"


def test_every_round_has_every_point_in_an_order_of_its_own() -> None:
    order = rounds(20, 3, seed=1)
    parts = [order[20 * each:20 * (each + 1)] for each in range(3)]
    assert all(sorted(part) == list(range(20)) for part in parts) and parts[0] != parts[1]
    assert order == rounds(20, 3, seed=1) != rounds(20, 3, seed=2)


def test_samples_as_columns() -> None:
    totals = Totals(forwards=1, decode_seqs=3, context=99)
    measured = measured_steps([table_of([Sample(0, totals, 0.25, 0.125), Sample(0, totals, 0.5, 0.125)])])
    assert measured.seconds.tolist() == [0.25, 0.5] and measured.host_seconds.tolist() == [0.125, 0.125]
    assert measured.decode_tokens.tolist() == [3, 3] and measured.context_tokens.tolist() == [99, 99]


def test_spread_names_the_worst_step() -> None:
    points = [Point(decode=1, context=8), Point(decode=2, context=8), Point(prompts=1, length=4)]
    times = [[1.0, 1.0, 1.0], [1.0, 1.1, 0.9], [1.0, 1.5, 0.5]]
    samples = [Sample(place, Totals(), value, 0.0) for place, values in enumerate(times) for value in values]
    found = spread_of(points, samples)
    assert found.median == pytest.approx(0.14826) and found.worst == pytest.approx(0.7413) and found.noisy
    assert found.worst_at == "1 x 4 prefill tokens"
