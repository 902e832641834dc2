"""A model as its config tells it, before anything is loaded: what it asks for, and why it cannot run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from ..models.dtype import canonical
from .attention.base import Needs
from .errors import ExecutorError
from .memory import require
from .pageable import unpageable
from .source import Source, find_source

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Prospect:
    """`shell` is the model without storage: its class and its sizes."""

    source: Source
    config: PretrainedConfig
    shell: PreTrainedModel
    device: torch.device
    dtype: torch.dtype

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def text(self) -> Any:
        """The config of the language model itself."""
        return self.config.get_text_config()

    @property
    def max_model_len(self) -> int | None:
        return getattr(self.text, "max_position_embeddings", None)

    @property
    def positions(self) -> int | None:
        """Rows of a table of positions, as GPT-2 has one; None where they are computed (rotary), for any length."""
        known, tokens = self.max_model_len, self.shell.get_input_embeddings()
        if known is None:
            return None
        tables = (part for part in self.shell.modules() if isinstance(part, nn.Embedding) and part is not tokens)
        return known if any(known <= each.num_embeddings <= known + 2 for each in tables) else None

    @property
    def supports_paged_attention(self) -> bool:
        """arcsim's own key of the config."""
        return bool(getattr(self.config, "supports_paged_attention", True))

    @property
    def kv_bytes_per_token(self) -> int:
        """As the config says; what the layers really keep is known once they have run."""
        heads = getattr(self.text, "num_key_value_heads", None) or self.text.num_attention_heads
        return int(2 * self.text.num_hidden_layers * heads * self._head_dim * self.dtype.itemsize)

    @property
    def _head_dim(self) -> int:
        return getattr(self.text, "head_dim", None) or self.text.hidden_size // self.text.num_attention_heads

    def needs(self, block_size: int) -> Needs:
        """What it will ask of an attention backend."""
        windows = "sliding_attention" in (getattr(self.text, "layer_types", None) or ())
        softcaps = getattr(self.text, "attn_logit_softcapping", None) is not None
        dims = frozenset({(self._head_dim, self._head_dim)})
        return Needs(self.device, self.dtype, block_size, dims, windows, softcaps, capability_of(self.device))

    def require(self, kv_tokens: int = 0) -> None:
        """Raises `ExecutorError` with the numbers where weights and a KV pool of that many tokens do not fit."""
        numbers = sum(parameter.numel() for parameter in self.shell.parameters())
        parts = {f"weights of {numbers:,} parameters in {dtype_name(self.dtype)}": float(numbers * self.dtype.itemsize)}
        if kv_tokens:
            parts[f"a KV pool of {kv_tokens:,} tokens"] = float(self.kv_bytes_per_token * kv_tokens)
        ways_out = "take a smaller model, a narrower dtype" + (" or fewer engine.num_blocks" if kv_tokens else "")
        require(self.name, parts, self.device, ways_out)


def prospect(name_or_path: str, *, device: str = "cpu", dtype: str = "auto", base: Path | None = None) -> Prospect:
    """What `name_or_path` (see `find_source`) will be on a device: cpu, cuda, cuda:N, or auto for CUDA where there is
    one. `dtype`: `auto` is that of the config. Raises `ExecutorError`: no such model, no weights, what cannot page."""
    source, place = find_source(name_or_path, base), _device(device)
    config = _config(source)
    number = _dtype(dtype, config)
    shell = _shell(source, config)
    reason = unpageable(config.get_text_config(), shell)
    if reason is not None:
        raise ExecutorError(f"{source.name} cannot run on a paged KV cache: {reason}")
    return Prospect(source, config, shell, place, number)


def capability_of(device: torch.device) -> tuple[int, int] | None:
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ExecutorError(f"no device '{name}': auto, cpu, cuda or cuda:N is meant") from error
    if device.type not in ("cpu", "cuda"):
        raise ExecutorError(f"no device '{name}': auto, cpu, cuda or cuda:N is meant")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ExecutorError(f"device {name}: torch {torch.__version__} finds no CUDA device here; use cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ExecutorError(f"device {name}: there are {torch.cuda.device_count()} CUDA devices here, from cuda:0 on")
    return torch.device("cuda", torch.cuda.current_device()) if name == "cuda" else device


def _config(source: Source) -> PretrainedConfig:
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(source.config)
    except Exception as error:  # a config is checked by the code of its own architecture
        raise ExecutorError(f"{source.config}: {first_line(error)}") from error
    return config


def _dtype(name: str, config: PretrainedConfig) -> torch.dtype:
    given = getattr(config, "dtype", None) or "bfloat16" if name == "auto" else name
    known = canonical(str(given))
    if known not in DTYPES:
        raise ExecutorError(f"dtype {known}: the executor computes in {', '.join(DTYPES)}")
    return DTYPES[known]


def _shell(source: Source, config: PretrainedConfig) -> PreTrainedModel:
    try:
        with torch.device("meta"):
            network: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    except Exception as error:  # as for the config
        raise ExecutorError(f"{source.name}: transformers cannot build it: {first_line(error)}") from error
    return network


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def first_line(error: Exception) -> str:
    """An error of a library, in one line."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else 'no message'}"
