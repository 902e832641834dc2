"""Times and memory sizes with units.

Mutations tried, each caught here: multiplying floats instead of decimals (`exact`), converting texts under `path`
(`left alone`), and a unit taken as the end of a longer word (`2.9 parsecs`).
"""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from arcsim.experiment.errors import UserError
from arcsim.experiment.units import MEMORY_UNITS, TIME_UNITS, memory, number_text, seconds, time_text, with_units

EXACT = {
    "2.9ms": 0.0029, "4.95ms": 0.00495, "16.1us": 16.1e-6, "16.1µs": 16.1e-6, "16.1μs": 16.1e-6, "0.639ms": 0.000639,
    "0.5s": 0.5, "3min": 180.0, "100ns": 1e-7, "1h": 3600.0, "-2ms": -0.002, "1e3us": 0.001, "2 s": 2.0, ".5s": 0.5,
}


@pytest.mark.parametrize(("text", "value"), EXACT.items())
def test_a_time_is_exactly_the_float_of_its_seconds(text: str, value: float) -> None:
    assert seconds(text) == value


@given(st.decimals(0, 10**6, places=4), st.sampled_from(sorted(TIME_UNITS)))
def test_any_time_is_read_to_the_nearest_float(number: Decimal, unit: str) -> None:
    assert seconds(f"{number}{unit}") == float(number * TIME_UNITS[unit])


@given(st.floats(1e-9, 1e5))
def test_a_time_survives_being_written_and_read(value: float) -> None:
    assert seconds(time_text(value, 17)) == pytest.approx(value, rel=1e-14)


@pytest.mark.parametrize("text", ["2.9 parsecs", "2.9", "ms", "", "2.9ms later", "1.2.3s", "٣s", "2.9Ms", "24GiB"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UserError, match=r"is no time: times are written 2\.9ms"):
        seconds(text)


@given(st.integers(0, 10**6), st.sampled_from(sorted(MEMORY_UNITS)))
def test_memory_is_a_whole_number_of_bytes(number: int, unit: str) -> None:
    assert memory(f"{number}{unit}") == number * int(MEMORY_UNITS[unit])


def test_memory_sizes() -> None:
    assert memory("24GiB") == 24 * 2**30
    assert memory("1.5 GB") == 1_500_000_000
    with pytest.raises(UserError, match="KB, MB, GB"):
        memory("24 gigs")


def test_texts_that_are_quantities_become_numbers_at_any_depth() -> None:
    section = {"decode_step": "2.90ms", "inner": [{"think_time": "1s"}, ["3min", 7]], "pool": "1GiB", "row": 0.1}
    assert with_units(section) == {
        "decode_step": 0.0029, "inner": [{"think_time": 1.0}, [180.0, 7]], "pool": 2**30, "row": 0.1,
    }


@pytest.mark.parametrize("value", [
    {"path": "10min"}, {"kind": "5s"}, {"rate": "x2"}, {"row": "2.9 parsecs"}, {"name": "3ms"}, {"n": None, "b": True},
])
def test_everything_else_is_left_alone(value: Any) -> None:
    assert with_units(value) == value


def test_only_texts_are_kept_under_a_text_key() -> None:
    assert with_units({"path": {"wait": "1s"}}) == {"path": {"wait": 1.0}}


@pytest.mark.parametrize(("value", "text"), [
    (0.0029, "2.9ms"), (16.1e-6, "16.1us"), (5e-8, "50ns"), (0.0, "0s"), (2.0, "2s"), (12345.678, "12345.7s"),
    (0.5, "500ms"), (-0.002, "-2ms"),
])
def test_times_for_people(value: float, text: str) -> None:
    assert time_text(value) == text


@pytest.mark.parametrize(("value", "text"), [
    (1.0, "1"), (9.12731, "9.127"), (123456.0, "123456"), (4007.26, "4007.3"), (0.00012346, "0.0001235"),
    (1e20, "1e+20"),
])
def test_numbers_for_people(value: float, text: str) -> None:
    assert number_text(value) == text
