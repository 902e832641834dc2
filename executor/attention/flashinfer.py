"""FlashInfer's paged prefill kernel, which serves every batch and any page size; it plans each pass ahead."""

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from itertools import accumulate
from typing import Any, Self

import torch
from torch import Tensor

from .base import Attention, Needs, Rows, Spec
from .flash_attn import unfit

DIMS = (64, 128, 256)
WORKSPACE = 128 * 2**20
"""Bytes, as the package recommends."""


class FlashInfer(Attention):
    """One wrapper for each kind of layer; its plan is made at the first layer of that kind in each pass.

    Planning works on the host and differs from batch to batch, so CUDA graphs cannot hold it.
    """

    name = "flashinfer"
    computes_on = "cuda"

    def __init__(self, wrapper: Callable[[Tensor, str], Any], device: torch.device) -> None:
        self._wrapper = wrapper
        self._device = device
        self._kinds: dict[Spec, Any] = {}
        self._planned: set[Spec] = set()

    @classmethod
    def refusal(cls, needs: Needs) -> str | None:
        reason = unfit(needs, (8, 0))
        unknown = sorted({key for key, _ in needs.dims} - set(DIMS))
        if reason is None and unknown:
            reason = f"it has kernels for heads of {', '.join(map(str, DIMS))} numbers, not of {unknown[0]}"
        if reason is None and find_spec("flashinfer") is None:
            reason = "the package flashinfer-python is not installed"
        return reason

    @classmethod
    def load(cls, needs: Needs) -> Self:
        return cls(importlib.import_module("flashinfer").BatchPrefillWithPagedKVCacheWrapper, needs.device)

    @property
    def describe(self) -> str:
        return f"flashinfer {getattr(importlib.import_module('flashinfer'), '__version__', '')}".strip()

    def begin(self, rows: Rows, block_size: int) -> None:
        self._planned.clear()

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, rows: Rows, spec: Spec) -> Tensor:
        if spec not in self._kinds:
            workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=self._device)
            self._kinds[spec] = self._wrapper(workspace, "NHD")
        if spec not in self._planned:
            self._kinds[spec].plan(*page_lists(rows, keys.shape[1]), **_plan(query, keys, spec))
            self._planned.add(spec)
        found: Tensor = self._kinds[spec].run(query, (keys, values))
        return found


def page_lists(rows: Rows, block_size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Where queries start, where each row's pages start, the pages of all rows, and how many keys each row's last page
    holds: int32, on the host."""
    pages = [-(-length // block_size) for length in rows.key_lens]
    held = torch.arange(rows.host_table.shape[1]) < torch.tensor(pages)[:, None]
    last = [length - (count - 1) * block_size for length, count in zip(rows.key_lens, pages, strict=True)]
    return _starts(rows.query_lens), _starts(pages), rows.host_table[held], torch.tensor(last, dtype=torch.int32)


def _starts(counts: Any) -> Tensor:
    return torch.tensor([0, *accumulate(counts)], dtype=torch.int32)


def _plan(query: Tensor, keys: Tensor, spec: Spec) -> dict[str, Any]:
    return {
        "num_qo_heads": query.shape[1], "num_kv_heads": keys.shape[2], "head_dim_qk": keys.shape[3],
        "page_size": keys.shape[1], "causal": True, "sm_scale": spec.scale,
        "window_left": -1 if spec.window is None else spec.window - 1, "logits_soft_cap": spec.softcap or 0.0,
        "q_data_type": query.dtype, "kv_data_type": keys.dtype,
    }
