"""The fit of the affine model: what it recovers, what it refuses, the file it writes."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize  # noqa: F401 - slow, and else within the first example
import yaml
from hypothesis import assume, given, settings, strategies as st

from arcsim.sim.fit import FEATURES, AffineFit, FitError, features_of_steps, fit_affine, fit_steps
from arcsim.sim.fit_file import write_fit
from arcsim.sim.latency.config import load_latency_file

TRUE = np.array([2.9e-3, 4.95e-3, 16.1e-6, 0.639e-3])
TABLE: dict[str, list[float]] = {
    "forward_width": [2, 0, 3, 3], "prefill_seqs": [2, 0, 0, 1], "padded_tokens": [64, 0, 0, 16],
    "context_tokens": [60, 0, 70, 80], "t_start": [0.0, 1.0, 2.0, 3.0], "t_end": [0.5, 1.0, 2.25, 3.5],
}


def random_features(seed: int, count: int = 40) -> np.ndarray:
    """Sums over runs: decode steps, prefill steps, padded tokens, rows."""
    random = np.random.default_rng(seed)
    return np.column_stack([random.integers(1, 500, count), random.integers(1, 50, count),
                            random.integers(10, 50_000, count), random.integers(1, 5000, count)]).astype(float)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_numbers_that_made_the_times_are_recovered(seed: int, scale: list[float]) -> None:
    truth = TRUE * np.array(scale)
    features = random_features(seed)
    assume((features @ truth > 1e-6).all())
    fit = fit_affine(features, features @ truth)
    assert fit.max_error < 1e-6 and not fit.undetermined
    assert np.allclose(features @ np.array(fit.coefficients), features @ truth, rtol=1e-6)


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_no_number_is_negative_and_none_nearby_is_better(seed: int) -> None:
    """The optimum under the bound: a small move of any coefficient that stays at 0 or above never helps."""
    random = np.random.default_rng(seed)
    features, seconds = random_features(seed), random.uniform(0.01, 10, 40)
    fit = fit_affine(features, seconds)
    best = _loss(features, seconds, np.array(fit.coefficients))
    for place in range(4):
        for step in (1e-4, -1e-4):
            moved = np.array(fit.coefficients)
            moved[place] = max(moved[place] + step * TRUE[place], 0.0)
            assert _loss(features, seconds, moved) >= best * (1 - 1e-9)
    assert min(fit.coefficients) >= 0


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_units_of_time_do_not_matter(seed: int, factor: float) -> None:
    features = random_features(seed)
    seconds = features @ TRUE * np.random.default_rng(seed).uniform(0.9, 1.1, 40)
    one, other = fit_affine(features, seconds), fit_affine(features, seconds * factor)
    assert np.allclose(np.array(one.coefficients) * factor, other.coefficients, rtol=1e-6, atol=1e-12 * factor)


def test_features_of_a_step_table() -> None:
    assert features_of_steps(TABLE).tolist() == [[0, 1, 64, 2], [0, 0, 0, 0], [1, 0, 0, 3], [0, 1, 16, 3]]
    assert features_of_steps(TABLE, context=True)[:, 4].tolist() == [60, 0, 70, 80]


def test_steps_of_several_runs_are_fitted_together_and_empty_ones_are_not() -> None:
    fit = fit_steps([TABLE, TABLE], context=False)
    assert fit.seconds.tolist() == [0.5, 0.25, 0.5] * 2 and fit.names == FEATURES


@pytest.mark.parametrize(("constant", "lost"), [
    ([1, 0, 0, 8], {"decode_step", "prefill_step", "padded_prefill_token", "row"}),
    ([1, 0, 0, None], {"prefill_step", "padded_prefill_token"}),
])
def test_what_the_rows_do_not_tell_apart_is_named(constant: list[int | None], lost: set[str]) -> None:
    """Decode steps of one width cannot part a step from its rows; without a prefill nothing is known of prefills."""
    rows = [[value if value is not None else width for value in constant] for width in range(1, 9)]
    fit = fit_affine(np.array(rows, dtype=float), np.linspace(0.1, 0.8, 8))
    assert set(fit.undetermined) == lost


@pytest.mark.parametrize(("seconds", "said"), [
    ([1.0, 1, 0, 1, 1], "measurement 2: seconds must be above 0"), ([1.0, np.nan, 1, 1, 1], "measurement 1: seconds"),
    ([1.0, 1, 1], "do not go with"),
])
def test_measurements_that_cannot_be(seconds: list[float], said: str) -> None:
    with pytest.raises(FitError, match=said):
        fit_affine(random_features(1, 5), np.array(seconds))


def test_too_few_measurements() -> None:
    with pytest.raises(FitError, match="3 measurements cannot fix 4 numbers"):
        fit_affine(random_features(1, 3), np.ones(3))


def test_a_table_without_a_column_or_a_step() -> None:
    with pytest.raises(FitError, match="no column 'padded_tokens'; a fit needs prefill_seqs"):
        features_of_steps({key: value for key, value in TABLE.items() if key != "padded_tokens"})
    with pytest.raises(FitError, match="no step ran anything"):
        fit_steps([{key: value[1:2] for key, value in TABLE.items()}])


def test_the_file_is_a_latency_model_and_tells_how_well_it_fits(tmp_path: Path) -> None:
    fit = _noisy_fit()
    path = tmp_path / "latency.yaml"
    write_fit(fit, path, "8 cells of a table")
    assert load_latency_file(path) == fit.model()
    record = yaml.safe_load(path.read_text())["fitted"]
    assert record["source"] == "8 cells of a table" and record["measurements"] == 8
    assert record["max_relative_error"] == pytest.approx(fit.max_error, rel=1e-3)
    assert [row["label"] for row in record["rows"]] == list("abcdefgh")
    assert [row["relative_error"] for row in record["rows"]] == pytest.approx(fit.errors, abs=1e-6)
    assert os.listdir(tmp_path) == ["latency.yaml"]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "latency.yaml"
    path.mkdir()
    with pytest.raises(OSError):
        write_fit(_noisy_fit(), path, "here")
    assert path.is_dir() and os.listdir(tmp_path) == ["latency.yaml"]


def _noisy_fit() -> AffineFit:
    features = random_features(3, 8)
    noise = np.random.default_rng(3).uniform(0.98, 1.02, 8)
    return fit_affine(features, features @ TRUE * noise, labels=list("abcdefgh"))


def _loss(features: np.ndarray, seconds: np.ndarray, coefficients: np.ndarray) -> float:
    return float(np.square(features @ coefficients / seconds - 1).sum())
