"""Model presets: their parameters, KV sizes and formats against public figures; the loader and its messages."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from arcsim.models.catalog import hardware_lines, model_lines
from arcsim.models.config_file import ModelError
from arcsim.models.dtype import bytes_of
from arcsim.models.feed_forward import FeedForward
from arcsim.models.shape import find_config, load_model, presets

# Parameters that transformers 5.24 builds from the same files (its models on the meta device, counted).
BUILT = {
    "deepseek-v3": 671_026_404_352, "gemma-2-9b": 9_241_705_984, "llama-2-7b": 6_738_415_616,
    "llama-3.1-70b": 70_553_706_496, "llama-3.1-8b": 8_030_261_248, "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824, "mistral-7b": 7_248_023_552, "mixtral-8x7b": 46_702_792_704,
    "phi-3-mini": 3_821_079_552, "qwen2.5-0.5b": 494_032_768, "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-14b": 14_770_033_664, "qwen2.5-32b": 32_763_876_352, "qwen2.5-72b": 72_706_203_648,
    "qwen2.5-7b": 7_615_616_512, "qwen3-0.6b": 596_049_920, "qwen3-14b": 14_768_307_200,
    "qwen3-30b-a3b": 30_532_122_624, "qwen3-32b": 32_762_123_264, "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360, "smollm-135m": 134_515_008,
}
ROUTING_BIAS = {"deepseek-v3": 58 * 256}  # in the checkpoint; a buffer, not a parameter, in transformers


@pytest.mark.parametrize("name", presets())
def test_parameters_are_those_that_transformers_builds(name: str) -> None:
    """To the number. Tried: leaving out the biases of qwen2, or two of gemma2's four norms, fails."""
    assert load_model(name).parameters == BUILT[name] + ROUTING_BIAS.get(name, 0)


@pytest.mark.parametrize(("name", "billions"), [
    ("qwen2.5-0.5b", 0.494), ("llama-3.1-8b", 8.03), ("mixtral-8x7b", 46.7), ("qwen3-8b", 8.19), ("llama-2-7b", 6.74),
    ("gemma-2-9b", 9.24), ("deepseek-v3", 671), ("phi-3-mini", 3.82), ("qwen3-30b-a3b", 30.5), ("smollm-135m", 0.1345),
])
def test_parameters_are_those_published(name: str, billions: float) -> None:
    assert load_model(name).parameters / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize(("name", "billions", "within"), [
    ("mixtral-8x7b", 12.9, 0.01), ("qwen3-30b-a3b", 3.3, 0.02), ("deepseek-v3", 37, 0.02), ("llama-3.1-8b", 8.03, 0.01),
])
def test_active_parameters_are_those_published(name: str, billions: float, within: float) -> None:
    assert load_model(name).active_parameters / 1e9 == pytest.approx(billions, rel=within)


@pytest.mark.parametrize(("name", "kib"), [
    ("llama-3.1-8b", 128), ("llama-3.1-70b", 320), ("llama-2-7b", 512), ("qwen2.5-0.5b", 12), ("gemma-2-9b", 336),
    ("deepseek-v3", 70_272 / 1024),  # one latent of 512 and a rotary key of 64 per layer
])
def test_kv_bytes_per_token(name: str, kib: float) -> None:
    shape = load_model(name)
    assert shape.kv_bytes_per_token() == kib * 1024
    assert shape.kv_bytes_per_token("fp8") == kib * 512


def test_kv_heads_are_split_over_devices_but_a_latent_is_not() -> None:
    llama, deepseek = load_model("llama-3.1-8b"), load_model("deepseek-v3")
    whole = llama.kv_bytes_per_token()
    assert [whole / llama.kv_bytes_per_token(tensor_parallel=n) for n in (1, 2, 8, 16)] == [1, 2, 8, 8]
    assert deepseek.kv_bytes_per_token(tensor_parallel=8) == deepseek.kv_bytes_per_token()


def test_weights_follow_the_checkpoint_or_the_asked_format() -> None:
    llama, deepseek = load_model("llama-3.1-8b"), load_model("deepseek-v3")
    assert llama.weight_bytes() == 2 * llama.parameters
    assert llama.weight_bytes("fp8") == llama.parameters + 2 * llama.embedding  # embedding and head stay in bfloat16
    assert deepseek.weight_dtype == "fp8" and deepseek.dtype == "bfloat16"
    tied = load_model("qwen2.5-0.5b")
    assert tied.weight_bytes("int4") == (tied.parameters - tied.embedding) / 2 + 2 * tied.embedding


def test_flops_of_a_token_are_two_per_weight_that_it_passes() -> None:
    shape = load_model("llama-3.1-8b")
    matrices = shape.parameters - 2 * shape.embedding - shape.norms
    assert shape.flops_per_token == 2 * matrices and shape.head_flops == 2 * shape.embedding
    assert shape.prefill_pair_flops == 4 * 32 * 32 * 128


@settings(deadline=None)
@given(st.integers(1, 64), st.integers(0, 64), st.floats(0, 1e6))
def test_touched_experts(experts: int, chosen: int, tokens: float) -> None:
    """One token touches its own experts, many touch all, never more, and never fewer than with fewer tokens."""
    layers = FeedForward(dense=10, expert=100, experts=experts, chosen=min(chosen, experts), moe_layers=3)
    assert layers.touched(0) == layers.dense
    assert layers.touched(1) == pytest.approx(layers.active)
    assert layers.touched(tokens) <= layers.parameters + 1e-6
    assert layers.touched(tokens) <= layers.touched(tokens + 1) + 1e-6
    if chosen:
        assert layers.touched(1e9) == pytest.approx(layers.parameters)


def test_a_hugging_face_directory_is_a_model(tmp_path: Path) -> None:
    """By its config.json, relative to the base folder; a key that is null counts as left out."""
    config = _config("qwen2.5-0.5b")
    _write(tmp_path / "mine" / "config.json", {**config, "dtype": config.pop("torch_dtype"), "head_dim": None})
    shape = load_model("mine", tmp_path)
    assert (shape.name, shape.dtype) == ("mine", "bfloat16")
    assert shape.parameters == load_model("qwen2.5-0.5b").parameters
    assert load_model(str(tmp_path / "mine" / "config.json")) == shape
    assert find_config("mine", tmp_path) == tmp_path / "mine" / "config.json"


@pytest.mark.parametrize(("change", "said"), [
    ({"hidden_size": None}, "the key 'hidden_size' is missing"),
    ({"num_hidden_layers": "24"}, "'num_hidden_layers' must be a whole number"),
    ({"num_hidden_layers": 0}, "'num_hidden_layers' must be more than 0"),
    ({"num_key_value_heads": 5}, "num_key_value_heads 5 does not divide num_attention_heads 14"),
    ({"tie_word_embeddings": 1}, "'tie_word_embeddings' must be true or false"),
    ({"model_type": "rwkv"}, "model_type 'rwkv' is not known; known: deepseek_v2"),
    ({"model_type": 7}, "'model_type' must be a text"),
    ({"torch_dtype": "int3"}, "'int3' is not a known number format"),
    ({"quantization_config": {"quant_method": "new"}}, "method 'new' is not understood"),
    ({"quantization_config": "fp8"}, "'quantization_config' must be an object"),
])
def test_what_is_wrong_in_a_config_is_said_with_file_and_key(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = _write(tmp_path / "config.json", {**_config("qwen2.5-0.5b"), **change})
    with pytest.raises(ModelError) as error:
        load_model(str(path))
    assert str(path) in str(error.value) and said in str(error.value) and "\n" not in str(error.value)


def test_more_experts_chosen_than_there_are(tmp_path: Path) -> None:
    path = _write(tmp_path / "config.json", {**_config("mixtral-8x7b"), "num_experts_per_tok": 9})
    with pytest.raises(ModelError, match="num_experts_per_tok 9 is more than num_local_experts 8"):
        load_model(str(path))


@pytest.mark.parametrize(("text", "said"), [("[1]", "is a JSON object"), ("{", "not a JSON file")])
def test_a_config_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ModelError, match=said):
        load_model(str(path))


def test_quantised_checkpoints_say_their_bits(tmp_path: Path) -> None:
    quantised = {**_config("llama-3.1-8b"), "quantization_config": {"quant_method": "awq", "bits": 4}}
    assert load_model(str(_write(tmp_path / "awq.json", quantised))).weight_dtype == "int4"


def test_an_unknown_name_lists_the_presets_and_those_close() -> None:
    with pytest.raises(ModelError) as error:
        load_model("Qwen/Qwen2.5-0.5B-Instruct")
    assert "did you mean qwen2.5-0.5b" in str(error.value)
    assert all(name in str(error.value) for name in presets())


def test_a_directory_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"needs a config\.json"):
        load_model(str(tmp_path))


def test_number_formats() -> None:
    assert [bytes_of(name) for name in ("bf16", "torch.float16", "float8_e4m3fn", "INT4", "fp32")] == [2, 2, 1, 0.5, 4]
    with pytest.raises(ValueError, match="'int3' is not a known number format; known: float32"):
        bytes_of("int3")


def test_the_catalog_has_a_line_for_each() -> None:
    assert [line.split(":")[0] for line in model_lines()] == presets()
    assert "46.7 B parameters (12.9 B active), 32 layers, 128 KiB" in "\n".join(model_lines())
    assert "4.8 TB/s" in "\n".join(hardware_lines())


def test_models_and_latency_import_lightly() -> None:
    """Neither pandas nor scipy nor torch comes with them; scipy only when something is fitted."""
    code = ("import sys, arcsim.models.catalog, arcsim.sim.latency.config, arcsim.sim.fit_file, arcsim.sim.kv_capacity;"
            "print([name for name in ('pandas', 'scipy', 'torch', 'pyarrow') if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _config(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(find_config(name).read_text())
    return config


def _write(path: Path, config: dict[str, Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(config))
    return path
