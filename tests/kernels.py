"""Stand-ins for kernels that need a GPU: the same signatures, strict about what they are given, computed plainly."""

from collections.abc import Sequence as Ids
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arcsim.executor.attention.base import Rows

Window = tuple[int, int]
EVERYTHING = (-1, -1)
INTS = torch.int32


def rows_of(query_lens: Ids[int], key_lens: Ids[int], block_size: int, blocks: int, seed: int = 0) -> Rows:
    """Rows whose pages are scattered over the pool; what lies beyond a row's pages is rubbish that must not be read."""
    pages = [-(-length // block_size) for length in key_lens]
    order = torch.from_numpy(np.random.default_rng(seed).permutation(blocks)[:sum(pages)].astype(np.int32))
    table = torch.full((len(pages), max(pages) + 1), 10**6, dtype=INTS)
    for row, (count, start) in enumerate(zip(pages, np.cumsum([0, *pages]), strict=False)):
        table[row, :count] = order[start:start + count]
    return Rows(
        list(query_lens), list(key_lens), starts(query_lens), starts(key_lens), torch.tensor(key_lens, dtype=INTS),
        table, table, max(query_lens), max(key_lens),
    )


def starts(lengths: Ids[int]) -> Tensor:
    return torch.tensor([0, *np.cumsum(lengths)], dtype=INTS)


def plain_attention(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, window: Window, softcap: float
) -> Tensor:
    """One sequence in float64, query by query: [queries, heads, dim] over [length, kv_heads, dim]."""
    group, extra = query.shape[1] // keys.shape[1], keys.shape[0] - query.shape[0]
    keys, values = (part.double().repeat_interleave(group, dim=1) for part in (keys, values))
    out = torch.empty(*query.shape[:2], values.shape[2], dtype=torch.float64)
    for place in range(query.shape[0]):
        last = place + extra
        first = 0 if window[0] < 0 else max(0, last - window[0])
        seen, worth = keys[first:last + 1], values[first:last + 1]
        scores = torch.einsum("hd,khd->hk", query[place].double(), seen) * scale
        scores = softcap * torch.tanh(scores / softcap) if softcap else scores
        out[place] = torch.einsum("hk,khd->hd", scores.softmax(-1), worth)
    return out.to(query.dtype)


def plain_paged(
    query: Tensor, keys: Tensor, values: Tensor, queries: Tensor, lengths: Tensor, table: Tensor, scale: float,
    window: Window, softcap: float,
) -> Tensor:
    """Packed rows over pages: `queries` cumulative [rows + 1], `lengths` [rows]."""
    out, size = query.new_empty(*query.shape[:2], values.shape[3]), keys.shape[1]
    for row, length in enumerate(lengths.tolist()):
        start, stop = queries[row], queries[row + 1]
        pages = table[row, :-(-length // size)].long()
        out[start:stop] = plain_attention(
            query[start:stop], keys[pages].flatten(0, 1)[:length], values[pages].flatten(0, 1)[:length], scale, window,
            softcap,
        )
    return out


class Flash2:
    """flash-attn 2.8. `page`: what its pages must be a multiple of."""

    def __init__(self, page: int = 256) -> None:
        self.page = page
        self.calls: list[str] = []

    def flash_attn_varlen_func(
        self, q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int,
        max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
        window_size: Window = EVERYTHING, softcap: float = 0.0, alibi_slopes: Tensor | None = None,
        deterministic: bool = False, return_attn_probs: bool = False, block_table: Tensor | None = None,
    ) -> Tensor:
        self.calls.append("varlen")
        assert block_table is not None and softmax_scale is not None and causal and window_size[1] == 0
        self._check(q, k, v, block_table)
        rows = block_table.shape[0]
        assert q.dim() == 3 and cu_seqlens_q.shape == cu_seqlens_k.shape == (rows + 1,)
        assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == INTS and cu_seqlens_q[-1] == q.shape[0]
        lengths = cu_seqlens_k.diff()
        assert max_seqlen_q >= cu_seqlens_q.diff().max() and max_seqlen_k >= lengths.max()
        return plain_paged(q, k, v, cu_seqlens_q, lengths, block_table, softmax_scale, window_size, softcap)

    def flash_attn_with_kvcache(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None,
        rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None, cache_seqlens: Tensor | None = None,
        cache_batch_idx: Tensor | None = None, cache_leftpad: Tensor | None = None, block_table: Tensor | None = None,
        softmax_scale: float | None = None, causal: bool = False, window_size: Window = EVERYTHING,
        softcap: float = 0.0, rotary_interleaved: bool = True, alibi_slopes: Tensor | None = None, num_splits: int = 0,
        return_softmax_lse: bool = False,
    ) -> Tensor:
        self.calls.append("kvcache")
        assert block_table is not None and cache_seqlens is not None and softmax_scale is not None
        assert causal and k is None and v is None
        self._check(q, k_cache, v_cache, block_table)
        rows = block_table.shape[0]
        assert q.dim() == 4 and q.shape[:2] == (rows, 1)
        assert cache_seqlens.dtype == INTS and cache_seqlens.shape == (rows,)
        ones = torch.arange(rows + 1)
        found = plain_paged(q[:, 0], k_cache, v_cache, ones, cache_seqlens, block_table, softmax_scale, window_size,
                            softcap)
        return found.unsqueeze(1)

    def _check(self, q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> None:
        assert k.dim() == 4 and k.shape == v.shape and k.shape[1] % self.page == 0 and q.dtype == k.dtype == v.dtype
        assert table.dtype == INTS and table.stride(-1) == 1 and q.stride(-1) == 1


class Flash3:
    """flash-attn 3's one function."""

    def flash_attn_with_kvcache(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None,
        qv: Tensor | None = None, rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None,
        cache_seqlens: Tensor | None = None, cache_batch_idx: Tensor | None = None, cache_leftpad: Tensor | None = None,
        page_table: Tensor | None = None, cu_seqlens_q: Tensor | None = None, cu_seqlens_k_new: Tensor | None = None,
        max_seqlen_q: int | None = None, rotary_seqlens: Tensor | None = None, q_descale: Tensor | None = None,
        k_descale: Tensor | None = None, v_descale: Tensor | None = None, softmax_scale: float | None = None,
        causal: bool = False, window_size: Window = EVERYTHING, attention_chunk: int = 0, softcap: float = 0.0,
        rotary_interleaved: bool = True, scheduler_metadata: Tensor | None = None, num_splits: int = 0,
        pack_gqa: bool | None = None, sm_margin: int = 0, return_softmax_lse: bool = False,
    ) -> Tensor:
        assert page_table is not None and cache_seqlens is not None and cu_seqlens_q is not None
        assert softmax_scale is not None and causal and max_seqlen_q is not None
        assert page_table.dtype == cache_seqlens.dtype == cu_seqlens_q.dtype == INTS and q.dim() == 3
        assert max_seqlen_q >= cu_seqlens_q.diff().max() and q.stride(-1) == 1
        return plain_paged(q, k_cache, v_cache, cu_seqlens_q, cache_seqlens, page_table, softmax_scale, window_size,
                           softcap)


def varlen_attn(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor | None, max_q: int, max_k: int, *,
    return_aux: Any = None, scale: float | None = None, window_size: Window = EVERYTHING, enable_gqa: bool = False,
    seqused_k: Tensor | None = None, block_table: Tensor | None = None, num_splits: int | None = None,
) -> Tensor:
    """torch 2.12 and later."""
    assert enable_gqa or query.shape[1] == key.shape[-2]
    rules: dict[str, Any] = {"scale": scale, "window_size": window_size}
    if block_table is None:
        return varlen_attn_211(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, **rules)
    assert seqused_k is not None and scale is not None and num_splits == 1 and window_size[1] == 0
    assert cu_seq_k is not None and cu_seq_q.dtype == cu_seq_k.dtype == seqused_k.dtype == block_table.dtype == INTS
    assert key.dim() == 4 and key.shape[1] % 256 == 0
    assert max_q >= cu_seq_q.diff().max() and max_k >= seqused_k.max()
    return plain_paged(query, key, value, cu_seq_q, seqused_k, block_table, scale, window_size, 0.0)


def varlen_attn_211(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor | None, max_q: int, max_k: int, *,
    return_aux: Any = None, scale: float | None = None, window_size: Window = EVERYTHING,
) -> Tensor:
    """torch 2.11: no pages, no flag for grouped heads."""
    assert scale is not None and cu_seq_k is not None and window_size[1] == 0
    assert query.dim() == key.dim() == 3 and cu_seq_q.dtype == cu_seq_k.dtype == INTS
    assert cu_seq_q[-1] == query.shape[0] and cu_seq_k[-1] == key.shape[0]
    assert max_q >= cu_seq_q.diff().max() and max_k >= cu_seq_k.diff().max()
    pieces = [
        plain_attention(query[cu_seq_q[row]:cu_seq_q[row + 1]], key[cu_seq_k[row]:cu_seq_k[row + 1]],
                        value[cu_seq_k[row]:cu_seq_k[row + 1]], scale, window_size, 0.0)
        for row in range(len(cu_seq_q) - 1)
    ]
    return torch.cat(pieces)


class PrefillWrapper:
    """FlashInfer's BatchPrefillWithPagedKVCacheWrapper: planned once a pass, run for each layer."""

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str = "NHD", backend: str = "auto") -> None:
        assert float_workspace_buffer.dtype == torch.uint8 and kv_layout == "NHD"
        self.plans = 0
        self.runs = 0

    def plan(
        self, qo_indptr: Tensor, paged_kv_indptr: Tensor, paged_kv_indices: Tensor, paged_kv_last_page_len: Tensor,
        num_qo_heads: int, num_kv_heads: int, head_dim_qk: int, page_size: int, head_dim_vo: int | None = None,
        custom_mask: Tensor | None = None, packed_custom_mask: Tensor | None = None, causal: bool = False,
        pos_encoding_mode: str = "NONE", use_fp16_qk_reduction: bool = False, sm_scale: float | None = None,
        window_left: int = -1, logits_soft_cap: float | None = None, rope_scale: float | None = None,
        rope_theta: float | None = None, q_data_type: Any = "float16", kv_data_type: Any = None,
    ) -> None:
        for given in (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len):
            assert given.dtype == INTS and given.dim() == 1
        assert causal and sm_scale is not None and pos_encoding_mode == "NONE"
        assert paged_kv_indptr[-1] == len(paged_kv_indices) and ((paged_kv_last_page_len > 0).all())
        assert (paged_kv_last_page_len <= page_size).all()
        self.plans += 1
        self._heads = (num_qo_heads, num_kv_heads, head_dim_qk, page_size, q_data_type, kv_data_type)
        self._starts, self._rules = qo_indptr, (sm_scale, (window_left, 0), logits_soft_cap or 0.0)
        self._lengths = (paged_kv_indptr.diff() - 1) * page_size + paged_kv_last_page_len
        self._table = torch.zeros(len(self._lengths), int(paged_kv_indptr.diff().max()), dtype=INTS)
        for row, (start, stop) in enumerate(zip(paged_kv_indptr, paged_kv_indptr[1:], strict=False)):
            self._table[row, :stop - start] = paged_kv_indices[start:stop]

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor]) -> Tensor:
        self.runs += 1
        keys, values = paged_kv_cache
        assert (q.shape[1], keys.shape[2], keys.shape[3], keys.shape[1], q.dtype, keys.dtype) == self._heads
        return plain_paged(q, keys, values, self._starts, self._lengths, self._table, *self._rules)
