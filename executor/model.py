"""A causal language model of transformers, made ready to run on a paged KV cache."""

from collections.abc import Iterable, Sequence as Ids
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from ..models.dtype import canonical
from .cache import LayerShape, PagedLayer, Pass
from .errors import ExecutorError
from .hook import Witness, hold, install, let_go
from .memory import require
from .pageable import unpageable
from .source import Source, find_source
from .tokens import Vocabulary

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(slots=True, repr=False, eq=False)
class PagedModel:
    """`layers`: what attention each layer does, in the order they run. `seed` of random weights, None for stored ones.
    `notes`: lines that a person should see. `modules`: the attention modules, as `layers`."""

    name: str
    network: PreTrainedModel
    vocabulary: Vocabulary
    layers: Ids[LayerShape]
    device: torch.device
    dtype: torch.dtype
    max_model_len: int | None
    seed: int | None
    notes: list[str]
    modules: Ids[nn.Module]

    @property
    def kv_bytes_per_token(self) -> int:
        return sum(layer.width for layer in self.layers) * self.dtype.itemsize

    @property
    def weight_bytes(self) -> int:
        return _bytes(self.network.parameters())

    def attach(self, current: Pass, blocks: int, block_size: int) -> None:
        """Give every layer a cache of `blocks` blocks; one that it had before is dropped first."""
        self.detach()
        for module, shape in zip(self.modules, self.layers, strict=True):
            hold([module], PagedLayer(shape, current, blocks, block_size, self.device, self.dtype))

    def detach(self) -> None:
        """Drop the caches."""
        let_go(self.modules)

    @torch.inference_mode()
    def logits(self, ids: Tensor, positions: Tensor, last: Tensor) -> Tensor:
        """[rows, vocabulary] for the tokens `last` of packed `ids` and `positions` [1, tokens]. With no rows the output
        head is left out."""
        if not len(last):
            body: Any = self.network.base_model
            body(input_ids=ids, position_ids=positions, use_cache=False)
            return torch.empty(0, self.vocabulary.size, device=self.device)
        found = self.network(input_ids=ids, position_ids=positions, use_cache=False, logits_to_keep=last)
        logits: Tensor = found.logits[0]
        return logits


def load_model(
    name_or_path: str, *, device: str = "cpu", dtype: str = "auto", seed: int = 0, base: Path | None = None,
    kv_tokens: int = 0,
) -> PagedModel:
    """A preset or config file with random weights drawn from `seed`, a Hugging Face directory, or a model of the hub.

    `dtype`: `auto` is that of the config. `kv_tokens`: size of the KV pool that must fit beside the weights. Raises
    `ExecutorError` before loading: no such model, no weights, what cannot page, what does not fit.
    """
    source, place = find_source(name_or_path, base), _device(device)
    config = _config(source)
    number = _dtype(dtype, config)
    shell = _shell(source, config)
    reason = unpageable(config.get_text_config(), shell)
    if reason is not None:
        raise ExecutorError(f"{source.name} cannot run on a paged KV cache: {reason}")
    _require(source, config, shell, number, place, kv_tokens)
    network = _random(config, number, place, seed) if source.weights is None else _stored(source.weights, number, place)
    return _paged(source, config, network.eval().requires_grad_(False), place, number, seed)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ExecutorError(f"no device '{name}': cpu, cuda or cuda:N is meant") from error
    if device.type not in ("cpu", "cuda"):
        raise ExecutorError(f"no device '{name}': cpu, cuda or cuda:N is meant")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ExecutorError(f"device {name}: torch {torch.__version__} finds no CUDA device here; use cpu")
    return torch.device("cuda", torch.cuda.current_device()) if name == "cuda" else device


def _config(source: Source) -> PretrainedConfig:
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(source.config)
    except Exception as error:  # a config is checked by the code of its own architecture
        raise ExecutorError(f"{source.config}: {_first_line(error)}") from error
    return config


def _dtype(name: str, config: PretrainedConfig) -> torch.dtype:
    given = getattr(config, "dtype", None) or "bfloat16" if name == "auto" else name
    known = canonical(str(given))
    if known not in DTYPES:
        raise ExecutorError(f"dtype {known}: the executor computes in {', '.join(DTYPES)}")
    return DTYPES[known]


def _shell(source: Source, config: PretrainedConfig) -> PreTrainedModel:
    """The model without storage: its class and its sizes."""
    try:
        with torch.device("meta"):
            network: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    except Exception as error:  # as for the config
        raise ExecutorError(f"{source.name}: transformers cannot build it: {_first_line(error)}") from error
    return network


def _require(
    source: Source, config: PretrainedConfig, shell: PreTrainedModel, dtype: torch.dtype, device: torch.device,
    kv_tokens: int,
) -> None:
    text = config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    numbers = sum(parameter.numel() for parameter in shell.parameters())
    parts = {f"weights of {numbers:,} parameters in {_name(dtype)}": float(numbers * dtype.itemsize)}
    if kv_tokens:
        size = 2 * text.num_hidden_layers * heads * dim * dtype.itemsize * kv_tokens
        parts[f"a KV pool of {kv_tokens:,} tokens"] = float(size)
    ways_out = "take a smaller model, a narrower dtype" + (" or fewer engine.num_blocks" if kv_tokens else "")
    require(source.name, parts, device, ways_out)


def _random(config: PretrainedConfig, dtype: torch.dtype, device: torch.device, seed: int) -> PreTrainedModel:
    """Weights as the architecture draws them; the same seed gives the same on the same kind of device."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.device(device):
        torch.manual_seed(seed)
        network: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return network


def _stored(weights: Path, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    try:
        network: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            weights, dtype=dtype, local_files_only=True, use_safetensors=True
        )
    except Exception as error:  # broken files, missing packages of a quantised format, ...
        raise ExecutorError(f"{weights}: the weights cannot be loaded: {_first_line(error)}") from error
    nn.Module.to(network, device)
    return network


def _paged(
    source: Source, config: PretrainedConfig, network: PreTrainedModel, device: torch.device, dtype: torch.dtype,
    seed: int,
) -> PagedModel:
    text = config.get_text_config()
    seen = _witnessed(network, device)
    modules = [module for module, _ in seen]
    if len(set(modules)) != len(modules) or len(modules) != text.num_hidden_layers:
        raise ExecutorError(
            f"{source.name} cannot run on a paged KV cache: {len(set(modules))} of {text.num_hidden_layers} layers "
            f"attended, {len(modules)} times in all; each must once"
        )
    return PagedModel(
        source.name, network, Vocabulary(text.vocab_size, _ends(network, text)), [shape for _, shape in seen], device,
        dtype, getattr(text, "max_position_embeddings", None), seed if source.weights is None else None,
        _notes(source, config), modules,
    )


def _witnessed(network: PreTrainedModel, device: torch.device) -> list[tuple[nn.Module, LayerShape]]:
    """Run a single token and see which modules attend, and how."""
    install(network)
    witness, everyone = Witness(), list(network.modules())
    hold(everyone, witness)
    try:
        run_alone(network, torch.zeros(1, 1, dtype=torch.int64, device=device))
    finally:
        let_go(everyone)
    return witness.seen


@torch.inference_mode()
def run_alone(network: PreTrainedModel, ids: Tensor) -> None:
    """One pass over packed tokens, each by itself at position 0; a `Witness` must be held."""
    network(input_ids=ids, position_ids=torch.zeros_like(ids), use_cache=False, logits_to_keep=1)


def _ends(network: PreTrainedModel, config: PretrainedConfig) -> frozenset[int]:
    """Tokens that end an output, of the generation config or else of the model's."""
    generation: Any = getattr(network, "generation_config", None)
    found = getattr(generation, "eos_token_id", None)
    found = config.eos_token_id if found is None else found
    ends: Iterable[int] = () if found is None else found if isinstance(found, Iterable) else (found,)
    return frozenset(token for token in ends if token < config.vocab_size)


def _notes(source: Source, config: PretrainedConfig) -> list[str]:
    notes = [] if source.weights is not None else [f"{source.name}: random weights, its output means nothing"]
    if source.weights is None and getattr(config, "quantization_config", None):
        notes.append(f"{source.name}: the quantisation of its checkpoint is not applied to random weights")
    return notes


def _bytes(parameters: Iterable[Tensor]) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else 'no message'}"
