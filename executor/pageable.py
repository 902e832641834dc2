"""Which models a paged KV cache can serve, told from their config and class before anything is loaded."""

import inspect

from torch import nn
from transformers import PretrainedConfig

PAGED = frozenset({"full_attention", "sliding_attention"})
"""Kinds of layer whose whole state is the keys and values of past tokens."""


def unpageable(config: PretrainedConfig, network: nn.Module) -> str | None:
    """Why a model cannot run on a paged cache; None if nothing speaks against it. `network` may be without storage."""
    if config.is_encoder_decoder or getattr(config, "add_cross_attention", False):
        return "it attends to another sequence (cross attention), which a paged cache of one's own tokens cannot hold"
    strange = sorted(set(getattr(config, "layer_types", None) or ()) - PAGED)
    if strange:
        return f"layers of kind {', '.join(strange)} keep a state that a paged cache cannot hold or cut differently"
    if getattr(network, "_is_stateful", False):
        return "it keeps a recurrent state, which a paged cache cannot hold"
    if getattr(config, "num_kv_shared_layers", 0):
        return "some of its layers read the cache of another layer"
    if not getattr(network, "_supports_attention_backend", False):
        return f"{type(network).__name__} does not let its attention be replaced (no AttentionInterface)"
    if "logits_to_keep" not in inspect.signature(network.forward).parameters:
        return f"{type(network).__name__} cannot be asked for the logits of chosen tokens (no logits_to_keep)"
    return None
