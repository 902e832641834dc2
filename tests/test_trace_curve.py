"""A gauge over time, and its envelope."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from arcsim.traces.curve import Curve, mean_over
from arcsim.traces.rows import run_from_rows

STEPS = [
    {"t_start": 1, "t_end": 2, "running": 5, "running_end": 4, "forward_width": 3},
    {"t_start": 2, "t_end": 3, "running": 7, "running_end": 1, "forward_width": 2},
    {"t_start": 5, "t_end": 6, "running": 2, "running_end": 0, "forward_width": 2},
]


def test_a_step_holds_to_its_end_and_the_gauge_after_commit_in_a_gap() -> None:
    curve = Curve.of(run_from_rows(STEPS), "running")
    assert curve.at(np.array([0.5, 1, 1.9, 2, 2.9, 3, 4.9, 5, 6, 99])).tolist() == [0, 5, 5, 7, 7, 1, 1, 2, 0, 0]


def test_nothing_is_in_a_forward_while_the_engine_is_idle() -> None:
    curve = Curve.of(run_from_rows(STEPS), "forward_width")
    assert curve.at(np.array([2.5, 3, 4.9, 5, 7])).tolist() == [2, 0, 0, 2, 0]


def test_a_run_without_steps_is_zero() -> None:
    curve = Curve.of(run_from_rows(), "running")
    assert curve.at(np.array([0.0, 1.0])).tolist() == [0, 0] and curve.start == curve.end == 0


def test_the_mean_over_two_runs_reaches_from_the_first_start_to_the_last_end() -> None:
    a = Curve.of(run_from_rows([{"t_start": 0, "t_end": 2, "running": 4}]), "running")
    b = Curve.of(run_from_rows([{"t_start": 1, "t_end": 4, "running": 2}]), "running")
    assert mean_over((a, b), lambda x, _: x) == 2
    assert mean_over((a, b), lambda _, y: y) == 1.5
    assert mean_over((a, b), lambda x, y: abs(x - y)) == (4 + 2 + 2 + 2) / 4


curves = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 50)), min_size=1, max_size=40)


@settings(max_examples=100, deadline=None)
@given(curves, st.integers(1, 9))
def test_an_envelope_loses_no_peak_and_invents_none(parts: list[tuple[int, int]], buckets: int) -> None:
    """Against a plain scan at every half second (all changes lie on whole seconds)."""
    times = np.concatenate([[0], np.cumsum([span for span, _ in parts])]).astype(float)
    curve = Curve(times, np.array([value for _, value in parts] + [0], dtype=float))
    edges = np.linspace(0, float(times[-1]) * buckets, buckets + 1) / buckets
    envelope = curve.envelope(edges)
    samples = np.arange(0, times[-1], 0.5)
    for i in range(buckets):
        inside = np.append(samples[(samples > edges[i]) & (samples < edges[i + 1])], edges[i])
        values = curve.at(inside)
        assert envelope.low[i] <= values.min() and envelope.high[i] >= values.max()
        assert set(envelope.low) | set(envelope.high) <= set(curve.values)
        assert envelope.low[i] - 1e-9 <= envelope.mean[i] <= envelope.high[i] + 1e-9
    assert envelope.high.max() == curve.values.max()
    assert (envelope.mean * np.diff(edges)).sum() == pytest.approx((curve.values[:-1] * np.diff(times)).sum())
