"""What the layers of each `model_type` hold that its `config.json` does not say."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from .config_file import ConfigFile, ModelError


@dataclass(frozen=True, slots=True)
class Family:
    """Facts of the modelling code in transformers.

    `qkv_bias`: biases on the query, key and value projections; `query_key_norm`: one norm of head_dim for each of
    them; `norms`: RMSNorms of hidden_size per layer; `tied`: the head shares the embedding unless the config says
    otherwise; `latent`: multi-head latent attention; `expert_keys`: the config's names of the number of routed
    experts and of an expert's width; `routing_bias`: one more number per expert in the router.
    """

    qkv_bias: bool = False
    query_key_norm: bool = False
    norms: int = 2
    tied: bool = False
    latent: bool = False
    expert_keys: tuple[str, str] | None = None
    routing_bias: bool = False


FAMILIES: Mapping[str, Family] = MappingProxyType({
    "deepseek_v2": Family(latent=True, expert_keys=("n_routed_experts", "moe_intermediate_size")),
    "deepseek_v3": Family(latent=True, expert_keys=("n_routed_experts", "moe_intermediate_size"), routing_bias=True),
    "gemma": Family(tied=True),
    "gemma2": Family(norms=4, tied=True),
    "llama": Family(),
    "mistral": Family(),
    "mixtral": Family(expert_keys=("num_local_experts", "intermediate_size")),
    "phi3": Family(),
    "qwen2": Family(qkv_bias=True),
    "qwen3": Family(query_key_norm=True),
    "qwen3_moe": Family(query_key_norm=True, expert_keys=("num_experts", "moe_intermediate_size")),
})


def family_of(config: ConfigFile) -> Family:
    """ModelError where the `model_type` is not known: its parameters would be a guess."""
    model_type = config.text("model_type")
    if model_type not in FAMILIES:
        raise ModelError(f"{config.path}: model_type '{model_type}' is not known; known: {', '.join(FAMILIES)}")
    return FAMILIES[model_type]
