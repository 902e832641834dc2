"""What the feed-forward blocks of a model hold, dense or routed to experts."""

from dataclasses import dataclass

from .config_file import ConfigFile, ModelError
from .family import Family


@dataclass(frozen=True, slots=True)
class FeedForward:
    """All layers together, in parameters.

    `dense`: what every token passes (dense blocks, shared experts, routers). `expert`: one routed expert;
    `experts` of them in each of `moe_layers` layers, of which a token passes `chosen`.
    """

    dense: int
    expert: int = 0
    experts: int = 0
    chosen: int = 0
    moe_layers: int = 0

    @property
    def parameters(self) -> int:
        return self.dense + self.moe_layers * self.experts * self.expert

    @property
    def active(self) -> int:
        """What one token passes."""
        return self.dense + self.moe_layers * self.chosen * self.expert

    def touched(self, tokens: float) -> float:
        """Expected parameters that `tokens` tokens of one forward read, if each picks its experts evenly and
        independently: an expert is left alone by one token with probability 1 - chosen / experts."""
        if not self.experts:
            return float(self.dense)
        alone = float((1.0 - self.chosen / self.experts) ** tokens)
        return self.dense + self.moe_layers * self.experts * (1.0 - alone) * self.expert


def read_feed_forward(config: ConfigFile, family: Family) -> FeedForward:
    layers = config.positive("num_hidden_layers")
    if family.expert_keys is None:
        return FeedForward(layers * _gated(config, config.positive("intermediate_size")))
    return _routed(config, family, layers, *family.expert_keys)


def _routed(config: ConfigFile, family: Family, layers: int, count_key: str, width_key: str) -> FeedForward:
    experts, expert = config.positive(count_key), _gated(config, config.positive(width_key))
    chosen = config.positive("num_experts_per_tok")
    if chosen > experts:
        raise ModelError(f"{config.path}: num_experts_per_tok {chosen} is more than {count_key} {experts}")
    moe_layers = _moe_layers(config, layers)
    shared = config.integer("n_shared_experts", 0) * expert
    router = experts * (config.positive("hidden_size") + family.routing_bias)
    blocks = layers - moe_layers
    dense = blocks * _gated(config, config.positive("intermediate_size")) if blocks else 0
    return FeedForward(dense + moe_layers * (shared + router), expert, experts, chosen, moe_layers)


def _moe_layers(config: ConfigFile, layers: int) -> int:
    """Every layer, except the first `first_k_dense_replace`, those of `mlp_only_layers` and those between the steps
    of `decoder_sparse_step` or `moe_layer_freq`."""
    first, only = config.integer("first_k_dense_replace", 0), set(config.keys.get("mlp_only_layers") or ())
    step, frequency = config.positive("decoder_sparse_step", 1), config.positive("moe_layer_freq", 1)
    return sum(
        layer >= first and layer not in only and (layer + 1) % step == 0 and layer % frequency == 0
        for layer in range(layers)
    )


def _gated(config: ConfigFile, width: int) -> int:
    """A gate, an up and a down projection."""
    hidden = config.positive("hidden_size")
    return 3 * hidden * width + (2 * width + hidden) * config.flag("mlp_bias")
