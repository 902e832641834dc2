"""What every attention backend is given and what it must give back."""

from abc import ABC, abstractmethod
from collections.abc import Sequence as Ids
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one forward pass, packed one after another without padding.

    `query_lens` and `key_lens` on the host, and the same on the device: `cu_seqlens_q` and `cu_seqlens_k` int32
    [rows + 1], `seqused_k` int32 [rows]. A row's last query sees all of its keys, the one before it one less, and so
    on. `block_table` int32 [rows, pages]: the pages of each row's keys in order, what lies beyond them is undefined;
    `host_table` is the same on the host. `max_q` and `max_k` bound the lengths from above.
    """

    query_lens: Ids[int]
    key_lens: Ids[int]
    cu_seqlens_q: Tensor
    cu_seqlens_k: Tensor
    seqused_k: Tensor
    block_table: Tensor
    host_table: Tensor
    max_q: int
    max_k: int


@dataclass(frozen=True, slots=True)
class Spec:
    """What a layer asks of attention: factor of the scores, how many keys a query sees (itself included; None: all),
    and the bound of `softcap * tanh(score / softcap)`."""

    scale: float
    window: int | None = None
    softcap: float | None = None


@dataclass(frozen=True, slots=True)
class Needs:
    """What a model on a device asks of a backend. `capability`: of a CUDA device. `dims`: head sizes of keys and
    values, over all layers. `windows`, `softcaps`: some layer has one."""

    device: torch.device
    dtype: torch.dtype
    block_size: int
    dims: frozenset[tuple[int, int]]
    windows: bool = False
    softcaps: bool = False
    capability: tuple[int, int] | None = None


class Attention(ABC):
    """One way to compute attention. `computes_on`: type of device, None for any. `capturable`: its calls can be
    recorded into a CUDA graph."""

    name: ClassVar[str]
    computes_on: ClassVar[str | None] = None
    capturable: bool = False

    @classmethod
    @abstractmethod
    def refusal(cls, needs: Needs) -> str | None:
        """Why this backend cannot serve on the device it is made for, with the ways out; None if it can."""

    @classmethod
    def load(cls, needs: Needs) -> Self:
        """Call where there is no refusal."""
        return cls()

    @property
    def describe(self) -> str:
        """Name and version for the record of a run."""
        return self.name

    def begin(self, rows: Rows, block_size: int) -> None:  # noqa: B027 - optional
        """A forward pass over these rows starts."""

    @abstractmethod
    def attend(self, query: Tensor, keys: Tensor, values: Tensor, rows: Rows, spec: Spec) -> Tensor:
        """One layer's attention.

        `query` [tokens, heads, key_dim]; `keys` and `values` [blocks, block_size, kv_heads, dim], those of this pass
        already written; returns [tokens, heads, value_dim].
        """
