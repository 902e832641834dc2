"""The affine latency model: its terms, and that a series of decode steps is the same steps one by one."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from arcsim.sim.latency.affine import Affine
from arcsim.sim.latency.work import Work

seconds = st.floats(0, 1, allow_nan=False, allow_subnormal=False)
models = st.builds(
    Affine, decode_step=seconds, prefill_step=seconds, padded_prefill_token=seconds, row=seconds,
    context_token=seconds, host_row=seconds,
)
H200 = Affine(decode_step=2.90e-3, prefill_step=4.95e-3, padded_prefill_token=16.1e-6, row=0.639e-3)


def test_a_step_with_any_prefill_pays_the_prefill_step() -> None:
    model = Affine(decode_step=1.0, prefill_step=10.0, padded_prefill_token=0.1, row=0.01, context_token=0.001)
    assert model.seconds(Work(1, 0, 3, 0, 0, 50, 0)) == pytest.approx(1 + 3 * 0.01 + 0.05)
    assert model.seconds(Work(1, 2, 3, 7, 8, 50, 28)) == pytest.approx(10 + 8 * 0.1 + 5 * 0.01 + 0.05)


def test_a_row_is_each_sequence_of_each_forward_prefill_included() -> None:
    """Tried: counting decode rows alone fails here."""
    assert H200.seconds(Work(1, 8, 0, 2200, 4000, 2200, 0)) == pytest.approx(4.95e-3 + 4000 * 16.1e-6 + 8 * 0.639e-3)


def test_host_seconds_are_part_of_the_step() -> None:
    plain, hosted = Affine(row=0.5), Affine(row=0.25, host_row=0.25)
    work = Work(2, 1, 3, 5, 5, 9, 15)
    assert hosted.host_seconds(work) == 1.0 and plain.host_seconds(work) == 0.0
    assert hosted.seconds(work) == plain.seconds(work) == 2.0


@settings(deadline=None)
@given(models, st.integers(1, 4096), st.integers(0, 10**9), st.integers(0, 200))
def test_a_decode_series_is_bit_for_bit_its_steps(model: Affine, rows: int, context: int, steps: int) -> None:
    work = Work(forwards=1, decode_seqs=rows, context_tokens=context)
    alone = [model.seconds(replace(work, context_tokens=context + i * rows)) for i in range(1, steps + 1)]
    assert model.decode_series(work, steps).tolist() == alone


def test_only_a_decode_step_continues_as_a_series() -> None:
    with pytest.raises(ValueError, match="prefills 2 rows"):
        H200.decode_series(Work(1, 2, 0, 8, 8, 8, 36), 3)


@pytest.mark.parametrize("keys", [{"row": -1.0}, {"rows": 1.0}, {"row": True}, {"kind": "x"}, {"row": float("inf")}])
def test_impossible_numbers_and_unknown_keys(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Affine.model_validate(keys)


def test_times_may_carry_units_and_the_record_is_in_seconds() -> None:
    model = Affine.model_validate({"decode_step": "2.90ms", "prefill_step": "4.95ms", "padded_prefill_token": "16.1us",
                                   "row": "0.639ms"})
    assert model == H200
    assert model.describe() == {"kind": "affine", "decode_step": 2.90e-3, "prefill_step": 4.95e-3, "context_token": 0.0,
                                "padded_prefill_token": 16.1e-6, "row": 0.639e-3, "host_row": 0.0}
