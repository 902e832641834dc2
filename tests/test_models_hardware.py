"""Hardware files: the bundled ones, one's own, units, and messages."""

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from arcsim.models.hardware import HardwareError, hardware_presets, load_hardware
from arcsim.models.quantity import parse_quantity, show

OWN = "memory: 24GB\nbandwidth: 1.0e+12\nflops: {bf16: 165TFLOP/s}\nbandwidth_efficiency: 0.8\n" \
      "matmul_efficiency: 0.6\nattention_efficiency: 0.5\n"


@pytest.mark.parametrize(("name", "bandwidth", "dense"), [
    ("a100", 2.039e12, 312e12), ("h100", 3.35e12, 989.4e12), ("h200", 4.8e12, 989.4e12), ("l40s", 864e9, 362.05e12),
])
def test_rates_are_those_of_the_data_sheets_and_dense(name: str, bandwidth: float, dense: float) -> None:
    device = load_hardware(name)
    assert device.bandwidth == bandwidth and device.rate("bfloat16") == device.rate("fp16") == dense


def test_every_bundled_device_loads() -> None:
    assert hardware_presets() == ["a100", "cpu", "h100", "h200", "l40s"]
    for name in hardware_presets():
        device = load_hardware(name)
        assert device.name == name and 0 <= device.reserve < device.memory


def test_a_format_without_a_rate_of_its_own_computes_in_bfloat16() -> None:
    a100, h100 = load_hardware("a100"), load_hardware("h100")
    assert a100.rate("fp8") == a100.rate("bf16") and h100.rate("fp8") > h100.rate("bf16") == h100.rate("int4")


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "rtx.yaml").write_text(OWN)
    device = load_hardware("rtx.yaml", tmp_path)
    assert (device.name, device.memory, device.bandwidth, device.rate("bfloat16")) == ("rtx", 24e9, 1e12, 165e12)
    assert device.step_overhead == 0 and device.link_bandwidth is None


@pytest.mark.parametrize(("text", "said"), [
    (OWN.replace("24GB", "24 parsec"), "'memory': '24 parsec' is not a quantity in B: write a number, or one with"),
    (OWN.replace("memory: 24GB\n", ""), "'memory': Field required"),
    (OWN + "colour: green\n", "unknown key 'colour' (known: name, description, memory"),
    (OWN.replace("bf16", "int3"), "'int3' is not a known number format"),
    (OWN.replace("bf16", "fp8"), "the rate of bfloat16 is required"),
    (OWN.replace("0.8", "1.8"), "'bandwidth_efficiency': Input should be less than or equal to 1"),
    (OWN.replace("24GB", "-24GB"), "'memory': Input should be greater than 0"),
    ("{", "not a YAML file"), ("- 1", "a hardware file is a list of keys and values"),
])
def test_what_is_wrong_is_said_with_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(HardwareError) as error:
        load_hardware(str(path))
    assert str(path) in str(error.value) and said in str(error.value)


def test_an_unknown_device_lists_those_there_are() -> None:
    with pytest.raises(HardwareError, match=r"'H100-SXM' is neither .*did you mean h100.*presets: a100, cpu, h100"):
        load_hardware("H100-SXM")


@pytest.mark.parametrize(("text", "unit", "value"), [
    ("2.90ms", "s", 0.0029), ("16.1us", "s", 16.1e-6), ("16.1 µs", "s", 16.1e-6), ("5", "s", 5.0), ("2e-05", "s", 2e-5),
    ("80GB", "B", 80e9), ("80 GiB", "B", 80 * 2.0**30), ("3.35TB/s", "B/s", 3.35e12), (7, "s", 7.0),
    ("989.4 TFLOP/s", "FLOP/s", 989.4e12),
])
def test_quantities(text: str | float, unit: str, value: float) -> None:
    """Exactly the float that the same decimal number gives (`2.9 * 1e-3` does not)."""
    assert parse_quantity(text, unit) == value


@pytest.mark.parametrize("text", ["", "ms", "3 min", "3GB", "1e999s", float("nan"), float("inf"), True, None, "1,5s"])
def test_what_is_no_quantity(text: object) -> None:
    with pytest.raises(ValueError, match=r"is not a quantity in s: write a number, or .*, such as 16\.1us"):
        parse_quantity(text, "s")


@settings(deadline=None)
@given(st.floats(1e-9, 1e12), st.sampled_from(["s", "B/s"]))
def test_what_is_shown_reads_back(value: float, unit: str) -> None:
    assert parse_quantity(show(value, unit, 17), unit) == pytest.approx(value, rel=1e-12)
