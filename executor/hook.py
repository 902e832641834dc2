"""Where transformers' attention layers meet the paged cache."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from .attention.base import Spec
from .cache import LayerShape, PagedLayer
from .errors import ExecutorError

NAME = "arcsim_paged"
HELD = "arcsim_layer"
"""Attribute of an attention module that says what computes its attention."""

HARMLESS = frozenset({
    "dropout", "output_attentions", "output_hidden_states", "output_router_logits", "position_ids", "return_dict",
    "use_cache",
})
"""Arguments that change nothing in inference over packed rows with positions of their own."""


def install(network: PreTrainedModel) -> None:
    """Make every attention module of a model ask what it holds."""
    AttentionInterface.register(NAME, _attend)
    network.set_attn_implementation(NAME)


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **rules: Any
) -> tuple[Tensor, None]:
    layer: PagedLayer | Witness = getattr(module, HELD)
    if isinstance(layer, Witness):
        layer.note(module, key, value, rules | {"attention_mask": attention_mask})
    return layer(query, key, value), None


class Witness:
    """Stands in for every layer's cache during one pass over a single token, and notes who asks for what.

    A single token sees itself alone, so its attention is its value, whatever the scores.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[nn.Module, LayerShape]] = []

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return value.repeat_interleave(query.shape[1] // value.shape[1], dim=1).transpose(1, 2)

    def note(self, module: nn.Module, key: Tensor, value: Tensor, rules: Mapping[str, Any]) -> None:
        if not rules.get("is_causal", getattr(module, "is_causal", True)):
            raise ExecutorError(f"{type(module).__name__} lets tokens see later ones, which a paged cache cannot serve")
        spec = _spec(type(module).__name__, key.shape[3], rules)
        self.seen.append((module, LayerShape(key.shape[1], key.shape[3], value.shape[3], spec)))


def _spec(layer: str, dim: int, rules: Mapping[str, Any]) -> Spec:
    """What a layer asks for. Raises `ExecutorError` for anything that no backend computes."""
    known = {"scaling", "sliding_window", "softcap", "is_causal"} | HARMLESS
    unknown = sorted(name for name, rule in rules.items() if rule is not None and name not in known)
    if unknown:
        raise ExecutorError(f"{layer} asks attention for {', '.join(unknown)}, which the paged cache does not honour")
    scale = rules.get("scaling")
    return Spec(dim**-0.5 if scale is None else float(scale), rules.get("sliding_window"), rules.get("softcap"))


def hold(modules: Iterable[nn.Module], layer: PagedLayer | Witness) -> None:
    """Let these modules ask `layer`."""
    for module in modules:
        setattr(module, HELD, layer)


def let_go(modules: Iterable[nn.Module]) -> None:
    """Forget what these modules asked."""
    for module in modules:
        if hasattr(module, HELD):
            delattr(module, HELD)
