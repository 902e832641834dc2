"""What attention holds, caches and computes."""

from dataclasses import dataclass

from .config_file import ConfigFile, ModelError
from .family import Family


@dataclass(frozen=True, slots=True)
class Attention:
    """One layer's attention.

    `parameters`: numbers in its weights. `kv_width`: numbers cached per token; tensor parallelism can split them into
    at most `kv_shards` parts. `prefill_flops` and `decode_flops`: FLOPs per query-key pair, over all heads.
    """

    heads: int
    kv_heads: int
    head_dim: int
    parameters: int
    kv_width: int
    kv_shards: int
    prefill_flops: int
    decode_flops: int


def read_attention(config: ConfigFile, family: Family) -> Attention:
    return _latent(config) if family.latent else _grouped(config, family)


def _grouped(config: ConfigFile, family: Family) -> Attention:
    """Grouped-query attention: per pair and head, a dot product and a weighted sum of head_dim (2 FLOPs each)."""
    hidden, heads = config.positive("hidden_size"), config.positive("num_attention_heads")
    kv_heads = config.positive("num_key_value_heads", heads)
    if heads % kv_heads:
        raise ModelError(f"{config.path}: num_key_value_heads {kv_heads} does not divide num_attention_heads {heads}")
    head_dim = config.positive("head_dim", hidden // heads)
    queries, keys = heads * head_dim, kv_heads * head_dim
    weights = hidden * (queries + 2 * keys) + queries * hidden
    bias = config.flag("attention_bias")
    biases = (queries + 2 * keys) * (bias or family.qkv_bias) + hidden * bias
    norms = 2 * head_dim * family.query_key_norm
    flops = 4 * queries
    return Attention(heads, kv_heads, head_dim, weights + biases + norms, 2 * keys, kv_heads, flops, flops)


def _latent(config: ConfigFile) -> Attention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    The cache keeps one latent vector and one rotary key per token and layer, whole on every tensor-parallel rank.
    Prefill expands keys and values per head; decode attends in the latent space (the absorbed form).
    """
    hidden, heads = config.positive("hidden_size"), config.positive("num_attention_heads")
    latent, rotary = config.positive("kv_lora_rank"), config.positive("qk_rope_head_dim")
    plain, value = config.positive("qk_nope_head_dim"), config.positive("v_head_dim")
    rank, query = config.integer("q_lora_rank", 0), heads * (plain + rotary)
    queries = hidden * rank + rank + rank * query if rank else hidden * query
    keys = hidden * (latent + rotary) + latent + latent * heads * (plain + value)
    biases = (rank + latent + rotary + hidden) * config.flag("attention_bias")
    return Attention(
        heads=heads, kv_heads=heads, head_dim=plain + rotary,
        parameters=queries + keys + heads * value * hidden + biases, kv_width=latent + rotary, kv_shards=1,
        prefill_flops=2 * heads * (plain + rotary + value), decode_flops=2 * heads * (2 * latent + rotary),
    )
