"""The flash-attn package: version 2, whose pages are multiples of 256, and version 3, which takes any."""

import importlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Self

import torch
from torch import Tensor

from .base import Attention, Needs, Rows, Spec

PAGE = 256
WIDEST = 256


def unfit(needs: Needs, lowest: tuple[int, int]) -> str | None:
    """What no flash kernel takes. `lowest`: compute capability."""
    if needs.capability is not None and needs.capability < lowest:
        return f"it needs compute capability {_dotted(lowest)}, this device has {_dotted(needs.capability)}"
    if needs.dtype not in (torch.float16, torch.bfloat16):
        return f"it computes float16 and bfloat16, not {str(needs.dtype).removeprefix('torch.')}"
    return _unfit_heads(needs)


def _unfit_heads(needs: Needs) -> str | None:
    for key, value in sorted(needs.dims):
        if key != value:
            return f"keys of {key} and values of {value} numbers a head differ"
        if key > WIDEST or key % 8:
            return f"a head of {key} numbers is not a multiple of 8 up to {WIDEST}"
    return None


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def window_of(spec: Spec) -> tuple[int, int]:
    """Keys before and after a query that it sees, -1 for all of them."""
    return (-1, 0) if spec.window is None else (spec.window - 1, 0)


class FlashAttention2(Attention):
    """One query a row goes to the kernel that splits long contexts, everything else to the one of variable lengths."""

    name = "flash_attn"
    computes_on = "cuda"
    capturable = True

    def __init__(self, varlen: Callable[..., Any], with_kvcache: Callable[..., Any]) -> None:
        self._varlen = varlen
        self._with_kvcache = with_kvcache

    @classmethod
    def refusal(cls, needs: Needs) -> str | None:
        reason = unfit(needs, (8, 0))
        if reason is None and find_spec("flash_attn") is None:
            reason = "the package flash-attn is not installed (pip install 'arcsim[flash]')"
        if reason is None and needs.block_size % PAGE:
            reason = (
                f"version 2 pages by multiples of {PAGE} tokens, engine.block_size is {needs.block_size}: set it to "
                f"{PAGE}, install flash-attn 3 (any size), or take flashinfer, torch_varlen or reference"
            )
        return reason

    @classmethod
    def load(cls, needs: Needs) -> Self:
        package = importlib.import_module("flash_attn")
        return cls(package.flash_attn_varlen_func, package.flash_attn_with_kvcache)

    @property
    def describe(self) -> str:
        return f"flash_attn {_version('flash-attn', '2')}"

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, rows: Rows, spec: Spec) -> Tensor:
        rules = {
            "softmax_scale": spec.scale, "causal": True, "window_size": window_of(spec), "softcap": spec.softcap or 0.0,
            "block_table": rows.block_table,
        }
        if rows.max_q == 1:
            found = self._with_kvcache(query.unsqueeze(1), keys, values, cache_seqlens=rows.seqused_k, **rules)
            return _tensor(found).squeeze(1)
        return _tensor(self._varlen(
            query, keys, values, cu_seqlens_q=rows.cu_seqlens_q, cu_seqlens_k=rows.cu_seqlens_k,
            max_seqlen_q=rows.max_q, max_seqlen_k=rows.max_k, **rules,
        ))


class FlashAttention3(Attention):
    """One kernel for every batch; it finds each row's queries by their cumulative lengths."""

    name = "flash_attn"
    computes_on = "cuda"
    capturable = True

    def __init__(self, with_kvcache: Callable[..., Any]) -> None:
        self._with_kvcache = with_kvcache

    @classmethod
    def refusal(cls, needs: Needs) -> str | None:
        reason = unfit(needs, (9, 0))
        if reason is None and find_spec("flash_attn_interface") is None:
            reason = "version 3 (flash_attn_interface) is not installed"
        return reason

    @classmethod
    def load(cls, needs: Needs) -> Self:
        return cls(importlib.import_module("flash_attn_interface").flash_attn_with_kvcache)

    @property
    def describe(self) -> str:
        return f"flash_attn {_version('flash-attn-3', '3')}"

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, rows: Rows, spec: Spec) -> Tensor:
        return _tensor(self._with_kvcache(
            query, keys, values, cache_seqlens=rows.seqused_k, page_table=rows.block_table,
            cu_seqlens_q=rows.cu_seqlens_q, max_seqlen_q=rows.max_q, softmax_scale=spec.scale, causal=True,
            window_size=window_of(spec), softcap=spec.softcap or 0.0,
        ))


def _tensor(found: Any) -> Tensor:
    """Some versions return the sums of the softmax too."""
    result: Tensor = found[0] if isinstance(found, tuple) else found
    return result


def _version(package: str, otherwise: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return otherwise
