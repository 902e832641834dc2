"""Which models the executor loads, how, and what it says of those that it cannot run."""

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs torch: pip install 'arcsim[executor]'")
pytest.importorskip("transformers", reason="the executor needs transformers: pip install 'arcsim[executor]'")

from transformers import AutoConfig, AutoModelForCausalLM

from arcsim.executor import memory
from arcsim.executor.attention.base import Spec
from arcsim.executor.backend import MeasuredBackend
from arcsim.executor.errors import ExecutorError
from arcsim.executor.linears import prepack, refusal
from arcsim.executor.model import load_model
from arcsim.executor.pool import auto_blocks
from arcsim.policies.base import EngineConfig

from .executing import COMMON, WINDOW, config_file, differences, mixed_requests, original, policy, serve, tiny


def _config(tmp_path: Path, **keys: Any) -> str:
    path = tmp_path / "shape.json"
    path.write_text(json.dumps(COMMON | keys), encoding="utf-8")
    return str(path)


# What is loaded


def test_a_presets_weights_come_from_the_seed() -> None:
    one, same, other = (load_model(str(config_file("llama")), dtype="float32", seed=seed) for seed in (0, 0, 1))
    weights = [dict(model.network.named_parameters()) for model in (one, same, other)]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
    assert not torch.equal(weights[0]["lm_head.weight"], weights[2]["lm_head.weight"])
    assert (one.seed, other.seed) == (0, 1)
    assert one.notes == ["llama: random weights, its output means nothing"]


def test_loading_leaves_the_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    load_model(str(config_file("llama")), seed=3)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_presets_config_decides_the_dtype() -> None:
    model = load_model("smollm-135m")
    assert (model.dtype, len(model.layers), model.vocabulary.size) == (torch.bfloat16, 30, 49152)
    assert (model.kv_bytes_per_token, model.weight_bytes) == (30 * 2 * 3 * 64 * 2, 134_515_008 * 2)
    assert model.max_model_len == 2048


def test_what_each_layer_asks_is_read_from_its_calls() -> None:
    assert [layer.spec for layer in tiny("gemma2").layers] == [
        Spec(8**-0.5, WINDOW, 4.0), Spec(8**-0.5, None, 4.0),
    ]
    assert [layer.spec.window for layer in tiny("mistral").layers] == [WINDOW, WINDOW]
    assert [(layer.kv_heads, layer.key_dim, layer.value_dim) for layer in tiny("qwen3").layers] == [(2, 16, 16)] * 2


def test_a_directory_with_weights(tmp_path: Path) -> None:
    original("qwen2").save_pretrained(tmp_path / "saved")
    model = load_model(str(tmp_path / "saved"), dtype="float32")
    requests = mixed_requests()[:4]
    engine = EngineConfig(block_size=4, num_blocks=40, max_num_seqs=4, max_num_batched_tokens=16)
    ran = serve(model, requests, policy("continuous", engine))
    assert not differences("qwen2", ran, requests)
    assert (model.name, model.seed, model.notes) == ("saved", None, [])


def test_ends_are_those_of_the_generation_config(tmp_path: Path) -> None:
    network = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config_file("qwen2")))
    network.generation_config.eos_token_id = [5, 9, 5000]
    network.save_pretrained(tmp_path)
    assert load_model(str(tmp_path)).vocabulary.ends == {5, 9}


# What is refused


@pytest.mark.parametrize(("keys", "told"), [
    ({"model_type": "mamba", "state_size": 4, "expand": 2}, "layers of kind linear_attention keep a state"),
    ({"model_type": "qwen3_next"}, "layers of kind linear_attention keep a state"),
    ({"model_type": "lfm2", "layer_types": ["conv", "full_attention"]}, "layers of kind conv keep a state"),
    ({"model_type": "llama4_text"}, "layers of kind chunked_attention keep a state that a paged cache cannot hold"),
    ({"model_type": "bloom"}, "does not let its attention be replaced"),
    ({"model_type": "rwkv"}, "recurrent state"),
    ({"model_type": "gpt2", "add_cross_attention": True}, "cross attention"),
    ({"model_type": "gpt_oss", "num_local_experts": 4, "rope_scaling": None}, "asks attention for s_aux"),
    ({"model_type": "t5"}, "transformers cannot build it"),
    ({"model_type": "no_such_model"}, "shape.json"),
])
def test_what_cannot_page(tmp_path: Path, keys: dict[str, Any], told: str) -> None:
    with pytest.raises(ExecutorError) as error:
        load_model(_config(tmp_path, **keys))
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_sinks_are_not_ignored(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match="GptOssAttention asks attention for s_aux, which the paged cache does not"):
        load_model(_config(tmp_path, model_type="gpt_oss", num_local_experts=4))


def test_too_large_is_said_before_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: 10 * memory.GIB)
    with pytest.raises(ExecutorError) as error:
        load_model("llama-3.1-8b", kv_tokens=4096)
    assert str(error.value) == (
        "llama-3.1-8b does not fit on cpu: weights of 8,030,261,248 parameters in bfloat16 14.96 GiB and a KV pool of "
        "4,096 tokens 0.50 GiB make 15.46 GiB, 10.00 GiB is free; take a smaller model, a narrower dtype or fewer "
        "engine.num_blocks"
    )


def test_a_pool_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: memory.GIB)
    with pytest.raises(ExecutorError, match="a KV pool of 1,000,000 blocks of 16 tokens 3.81 GiB, 1.00 GiB is free; "):
        MeasuredBackend(tiny("qwen2"), blocks=1_000_000, block_size=16)


def test_weights_that_lack_a_layer(tmp_path: Path) -> None:
    """They would be drawn at random, under the name of a checkpoint."""
    original("llama").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    load_model(str(tmp_path))
    config["num_hidden_layers"] += 1
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ExecutorError, match=r"they lack model\.layers\.2\..* and 8 more of the model's"):
        load_model(str(tmp_path))


def test_directories_that_lack_something(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match="needs a config.json"):
        load_model(str(tmp_path))
    (tmp_path / "config.json").write_text(Path(config_file("llama")).read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(ExecutorError, match=r"no weights: model\.safetensors is not there .* give .*config\.json"):
        load_model(str(tmp_path))
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    (tmp_path / "model-1.safetensors").write_bytes(b"")
    with pytest.raises(ExecutorError, match=r"no weights: model-2\.safetensors is not there"):
        load_model(str(tmp_path))
    (tmp_path / "model-2.safetensors").write_bytes(b"not a tensor")
    with pytest.raises(ExecutorError, match="the weights cannot be loaded"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(("arguments", "told"), [
    ({"name_or_path": "smolm-135m"}, "did you mean smollm-135m"),
    ({"name_or_path": "smollm-135m", "device": "cuda"}, "finds no CUDA device here; use cpu"),
    ({"name_or_path": "smollm-135m", "device": "tpu"}, "no device 'tpu': auto, cpu, cuda or cuda:N is meant"),
    ({"name_or_path": "smollm-135m", "dtype": "int8"}, "the executor computes in float32, float16, bfloat16"),
])
def test_bad_arguments(monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], told: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ExecutorError, match=told):
        load_model(**arguments)


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any, **__: Any) -> None:
        raise OSError("no route to the hub")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    with pytest.raises(ExecutorError, match="'some/model' is neither a preset nor a path here, .* no route to the hub"):
        load_model("some/model")


# The pool


def test_the_pool_that_nobody_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of what is free on a CPU, 4 GiB at most."""
    model = tiny("qwen2")
    assert model.kv_bytes_per_token == 2 * 2 * 2 * 8 * 4
    for free, taken in ((2 * memory.GIB, memory.GIB), (100 * memory.GIB, 4 * memory.GIB)):
        monkeypatch.setattr(memory, "free_memory", lambda device, free=free: free)
        assert auto_blocks(model, 16) == taken // (model.kv_bytes_per_token * 16)
    monkeypatch.setattr(memory, "free_memory", lambda device: 100)
    with pytest.raises(ExecutorError, match="no KV block fits on cpu"):
        auto_blocks(model, 16)


def test_the_pool_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Utilisation of the whole, less what is taken and what a pass takes on top."""

    class Properties:
        total_memory = 1000

    monkeypatch.setattr(memory, "free_memory", lambda device: 700)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties)
    assert memory.fitting_blocks(50, torch.device("cuda"), peak=200, utilisation=0.9) == (700 - 100 - 200) // 50


# Packed linears


def test_packed_linears_compute_the_same() -> None:
    reason = refusal(torch.device("cpu"), torch.bfloat16)
    if reason is not None:
        pytest.skip(reason)
    plain, packed = (load_model(str(config_file("qwen2")), dtype="bfloat16") for _ in range(2))
    assert prepack(packed.network) == 15
    for child, twin in zip(plain.network.modules(), packed.network.modules(), strict=True):
        if type(child) is torch.nn.Linear:
            x = torch.randn(1, 5, child.in_features).bfloat16()
            torch.testing.assert_close(twin(x), child(x), atol=0.1, rtol=0.02)
    embedded = [dict(model.network.named_parameters())["model.embed_tokens.weight"] for model in (plain, packed)]
    assert torch.equal(*embedded)


def test_packing_is_refused_where_it_does_not_help_or_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(torch.device("cpu"), torch.float32) == "it helps 16-bit weights on a CPU only"
    assert refusal(torch.device("cuda"), torch.bfloat16) == "it helps 16-bit weights on a CPU only"

    def gone(*_: Any) -> None:
        raise AttributeError("no operator of that name")

    monkeypatch.setattr("arcsim.executor.linears.PackedLinear.__init__", gone)
    assert "does not do it: no operator of that name" in str(refusal(torch.device("cpu"), torch.bfloat16))
