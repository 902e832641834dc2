"""The paged KV cache: one tensor of keys and one of values for each layer, held by the layer itself."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .attention.base import Attention, Rows, Spec
from .errors import ExecutorError

WIDEST = 256
"""Largest block, in tokens."""


@dataclass(slots=True)
class Pass:
    """What all layers of the forward pass under way share. `slots` int64 [tokens]: where each token's keys go."""

    attention: Attention
    rows: Rows | None = None
    slots: Tensor | None = None


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One attention layer: heads that are cached, numbers of a key and of a value, and what it asks of attention."""

    kv_heads: int
    key_dim: int
    value_dim: int
    spec: Spec

    @property
    def width(self) -> int:
        """Numbers cached per token."""
        return self.kv_heads * (self.key_dim + self.value_dim)


class PagedLayer:
    """The cache of one layer, and its attention over it.

    `keys` and `values` are [blocks, block_size, kv_heads, dim], zero until written.
    """

    def __init__(
        self, shape: LayerShape, current: Pass, blocks: int, block_size: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.spec = shape.spec
        self.keys = torch.zeros(blocks, block_size, shape.kv_heads, shape.key_dim, device=device, dtype=dtype)
        self.values = torch.zeros(blocks, block_size, shape.kv_heads, shape.value_dim, device=device, dtype=dtype)
        self._flat_keys, self._flat_values = self.keys.flatten(0, 1), self.values.flatten(0, 1)
        self._current = current

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Write the pass's keys and values, then attend. Arguments [1, heads, tokens, dim], result [1, tokens, heads,
        dim]: the order of transformers."""
        current = self._current
        assert current.rows is not None and current.slots is not None
        self._flat_keys.index_copy_(0, current.slots, key[0].transpose(0, 1))
        self._flat_values.index_copy_(0, current.slots, value[0].transpose(0, 1))
        packed = query[0].transpose(0, 1)
        return current.attention.attend(packed, self.keys, self.values, current.rows, self.spec).unsqueeze(0)


def check_block_size(block_size: int) -> None:
    if not 1 <= block_size <= WIDEST:
        raise ExecutorError(f"engine.block_size: the executor pages by 1 to {WIDEST} tokens, found {block_size}")
