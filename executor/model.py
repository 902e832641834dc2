"""A causal language model of transformers, made ready to run on a paged KV cache."""

from collections.abc import Iterable, Sequence as Ids
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from .cache import LayerShape, PagedLayer, Pass
from .errors import ExecutorError
from .fused import fuse
from .hook import Witness, hold, install, let_go
from .linears import prepack, refusal as unpackable
from .prospect import Prospect, first_line, prospect
from .source import Source
from .tokens import Vocabulary


@dataclass(slots=True, repr=False, eq=False)
class PagedModel:
    """`layers`: what attention each layer does, in the order they run. `seed` of random weights, None for stored ones.
    `notes`: lines that a person should see. `modules`: the attention modules, as `layers`. `source`: the file or folder
    that it was made from. `linears`, `elementwise`: how linear layers, and what lies between them, are computed."""

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
    source: str
    linears: str = "plain"
    elementwise: str = "plain"

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
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def pack(self) -> None:
        """Lay the weights of linear layers out once, where that helps; it is done at most once."""
        if self.linears.startswith("plain"):
            reason = unpackable(self.device, self.dtype)
            self.linears = f"{prepack(self.network)} packed once by oneDNN" if reason is None else f"plain: {reason}"

    def fuse(self) -> None:
        """Compute norms, activations and rotary embeddings by C++ kernels, where that helps; at most once."""
        if self.elementwise.startswith("plain"):
            self.elementwise = fuse(self.network, self.modules, self.device, self.dtype)

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
    found = prospect(name_or_path, device=device, dtype=dtype, base=base)
    found.require(kv_tokens)
    return load(found, seed=seed)


def load(found: Prospect, *, seed: int = 0) -> PagedModel:
    """The model of a prospect. Raises `ExecutorError`: broken weights, layers that ask for what cannot be paged."""
    number, place, weights = found.dtype, found.device, found.source.weights
    network = _random(found.config, number, place, seed) if weights is None else _stored(weights, number, place)
    return _paged(found, network.eval().requires_grad_(False), seed)


def _random(config: PretrainedConfig, dtype: torch.dtype, device: torch.device, seed: int) -> PreTrainedModel:
    """Weights as the architecture draws them; the same seed gives the same on the same kind of device."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.device(device):
        torch.manual_seed(seed)
        network: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return network


def _stored(weights: Path, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    read: Any = AutoModelForCausalLM.from_pretrained
    try:
        loaded: tuple[PreTrainedModel, dict[str, Any]] = read(
            weights, dtype=dtype, local_files_only=True, use_safetensors=True, output_loading_info=True
        )
    except Exception as error:  # broken files, missing packages of a quantised format, ...
        raise ExecutorError(f"{weights}: the weights cannot be loaded: {first_line(error)}") from error
    network, found = loaded
    _refuse_partial(weights, sorted(found["missing_keys"]))
    nn.Module.to(network, device)
    return network


def _refuse_partial(weights: Path, missing: list[str]) -> None:
    """What a checkpoint lacks transformers would draw at random."""
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ExecutorError(f"{weights}: the weights are not whole: they lack {missing[0]}{more} of the model's")


def _paged(found: Prospect, network: PreTrainedModel, seed: int) -> PagedModel:
    text, stored = found.text, found.source.weights is not None
    seen = _witnessed(network, found.device)
    modules = [module for module, _ in seen]
    if len(set(modules)) != len(modules) or len(modules) != text.num_hidden_layers:
        raise ExecutorError(
            f"{found.name} cannot run on a paged KV cache: {len(set(modules))} of {text.num_hidden_layers} layers "
            f"attended, {len(modules)} times in all; each must once"
        )
    return PagedModel(
        found.name, network, Vocabulary(text.vocab_size, _ends(network, text)), [shape for _, shape in seen],
        found.device, found.dtype, found.max_model_len, None if stored else seed, _notes(found.source, found.config),
        modules, str(found.source.weights or found.source.config),
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

