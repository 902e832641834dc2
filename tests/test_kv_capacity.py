"""The KV pool that fits beside a model."""

import pytest
from hypothesis import given, settings, strategies as st

from arcsim.models.hardware import hardware_presets, load_hardware
from arcsim.models.shape import load_model, presets
from arcsim.sim.kv_capacity import GIB, auto_num_blocks

LLAMA, H100 = load_model("llama-3.1-8b"), load_hardware("h100")


def test_llama_on_an_h100_is_what_vllm_reports() -> None:
    """vLLM's own start-up lines for it (utilisation 0.9): 14.99 GiB of weights, 54.6 to 54.9 GiB of KV, about 447,000
    tokens."""
    budget = auto_num_blocks(LLAMA, H100, 16)
    assert budget.weights / GIB == pytest.approx(14.99, abs=0.05)
    assert 54.5 < budget.kv / GIB < 55
    assert budget.tokens == pytest.approx(447_500, rel=0.005)
    assert budget.explain() == (
        "28,059 blocks of 16 tokens (448,944 tokens): 79.18 GiB x 0.9 = 71.26 GiB, less weights 14.96 GiB, runtime "
        "0.50 GiB, activations 1.00 GiB, leaves 54.80 GiB")


@settings(deadline=None)
@given(st.sampled_from(presets()), st.sampled_from(hardware_presets()), st.integers(1, 256), st.floats(0.05, 1.0),
       st.sampled_from([1, 2, 8]))
def test_what_is_given_out_fits(model: str, hardware: str, block: int, utilisation: float, devices: int) -> None:
    """The parts never exceed the memory, one more block would; where it raises, not one block fits."""
    shape, device = load_model(model), load_hardware(hardware)
    try:
        budget = auto_num_blocks(shape, device, block, utilisation=utilisation, tensor_parallel=devices)
    except ValueError as error:
        assert "leaves no room for a KV block" in str(error)
        return
    others = budget.weights + budget.reserve + budget.activations
    assert others + budget.num_blocks * budget.block_bytes <= device.memory * utilisation * (1 + 1e-12)
    assert others + (budget.num_blocks + 1) * budget.block_bytes > device.memory * utilisation * (1 - 1e-12)


def test_more_devices_or_narrower_numbers_leave_more() -> None:
    tokens = [auto_num_blocks(LLAMA, H100, 16, **keys).tokens for keys in ({}, {"kv_dtype": "fp8"})]  # type: ignore[arg-type]
    assert tokens[1] == pytest.approx(2 * tokens[0], rel=1e-3)
    assert auto_num_blocks(LLAMA, H100, 16, tensor_parallel=2).tokens > 2 * tokens[0]
    assert auto_num_blocks(LLAMA, H100, 16, weight_dtype="fp8").tokens > tokens[0]


def test_a_model_that_does_not_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(ValueError) as error:
        auto_num_blocks(load_model("llama-3.1-70b"), H100, 16)
    assert "llama-3.1-70b leaves no room for a KV block on 1 x h100: weights 131.42 GiB" in str(error.value)
    assert "79.18 GiB x 0.9 is 71.26 GiB" in str(error.value)


def test_an_impossible_utilisation() -> None:
    with pytest.raises(ValueError, match="utilisation must be more than 0 and at most 1, found 90"):
        auto_num_blocks(LLAMA, H100, 16, utilisation=90)
