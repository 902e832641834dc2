"""torch's own attention for rows of different lengths: by block table where torch can, else on gathered pages."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from .base import Attention, Needs, Rows, Spec
from .flash_attn import PAGE, unfit, window_of

MODULE = "torch.nn.attention.varlen"


class TorchVarlen(Attention):
    """`varlen_attn`. torch before 2.12 has no block table, and its built-in kernel pages by multiples of 256 tokens:
    elsewhere each layer first copies the pages of all rows into one run of keys and one of values."""

    name = "torch_varlen"
    computes_on = "cuda"

    def __init__(self, varlen: Callable[..., Any], block_size: int) -> None:
        known = inspect.signature(varlen).parameters
        self._varlen = varlen
        self._groups = {"enable_gqa": True} if "enable_gqa" in known else {}
        self._paged = "block_table" in known and block_size % PAGE == 0
        self._block_size = block_size
        self._slots: Tensor | None = None
        self.capturable = self._paged

    @classmethod
    def refusal(cls, needs: Needs) -> str | None:
        reason = unfit(needs, (8, 0))
        if reason is None and needs.softcaps:
            reason = "it has no soft-capping, which the model needs"
        if reason is None and not _window_argument():
            reason = f"torch {torch.__version__} has no {MODULE}.varlen_attn with windows (2.11 has)"
        return reason

    @classmethod
    def load(cls, needs: Needs) -> Self:
        return cls(importlib.import_module(MODULE).varlen_attn, needs.block_size)

    @property
    def describe(self) -> str:
        return f"torch_varlen ({'by block table' if self._paged else 'gathers pages first'}), torch {torch.__version__}"

    def begin(self, rows: Rows, block_size: int) -> None:
        if not self._paged:
            self._slots = slots_of_keys(rows, block_size)

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, rows: Rows, spec: Spec) -> Tensor:
        lengths = (rows.cu_seqlens_q, rows.cu_seqlens_k, rows.max_q, rows.max_k)
        rules = {"scale": spec.scale, "window_size": window_of(spec)} | self._groups
        if self._paged:
            # num_splits: more than one gives wrong rows with a block table (pytorch issue 194167)
            pages = {"seqused_k": rows.seqused_k, "block_table": rows.block_table, "num_splits": 1}
            found = self._varlen(query, keys, values, *lengths, **rules, **pages)
        else:
            found = self._varlen(query, self._gather(keys), self._gather(values), *lengths, **rules)
        result: Tensor = found
        return result

    def _gather(self, cache: Tensor) -> Tensor:
        assert self._slots is not None
        return cache.flatten(0, 1).index_select(0, self._slots)


def slots_of_keys(rows: Rows, block_size: int) -> Tensor:
    """Where each key of each row lies in the flattened cache, int64 [keys of all rows]. Waits for no device."""
    device, total = rows.seqused_k.device, sum(rows.key_lens)
    lengths = rows.seqused_k.long()
    row = torch.repeat_interleave(torch.arange(len(rows.key_lens), device=device), lengths, output_size=total)
    place = torch.arange(total, device=device) - rows.cu_seqlens_k.long()[row]
    page = rows.block_table[row, place // block_size].long()
    return page * block_size + place % block_size


def _window_argument() -> bool:
    try:
        found = importlib.import_module(MODULE).varlen_attn
    except (ImportError, AttributeError):
        return False
    return "window_size" in inspect.signature(found).parameters
