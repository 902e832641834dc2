"""Attention in plain torch, a sequence at a time, on any device."""

from collections.abc import Iterator, Sequence as Ids
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, softmax

from .base import Attention, Needs, Rows, Spec

SHORT = 512
"""Keys up to which decoding rows of one length are done together; beyond, one by one is as fast."""

FEW = 4
"""Rows that are worth doing together."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a pass: its queries are tokens `start` to `stop`, its keys the first `length` of `pages`."""

    start: int
    stop: int
    length: int
    pages: Tensor


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one query each with `length` keys each. `tokens` int64 [rows], `pages` those of all rows in order."""

    rows: Ids[Row]
    length: int
    tokens: Tensor
    pages: Tensor


class Reference(Attention):
    """Gathers each sequence's pages and calls torch's own attention on them."""

    name = "reference"

    def __init__(self) -> None:
        self._groups: list[Group] = []
        self._rows: list[Row] = []

    @classmethod
    def refusal(cls, needs: Needs) -> str | None:
        return None

    def begin(self, rows: Rows, block_size: int) -> None:
        self._rows, alike = [], dict[int, list[Row]]()
        for row in each_row(rows, block_size):
            short = row.stop - row.start == 1 and row.length <= SHORT
            (alike.setdefault(row.length, []) if short else self._rows).append(row)
        self._rows += [row for some in alike.values() if len(some) < FEW for row in some]
        self._groups = [_group(some) for some in alike.values() if len(some) >= FEW]

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, rows: Rows, spec: Spec) -> Tensor:
        out = query.new_empty((query.shape[0], query.shape[1], values.shape[-1]))
        for row in self._rows:
            attend_row(query, keys, values, row, spec, out)
        for group in self._groups:
            if spec.softcap is None:
                out[group.tokens] = _together(query[group.tokens], keys, values, group, spec)
            else:
                for row in group.rows:
                    attend_row(query, keys, values, row, spec, out)
        return out


def each_row(rows: Rows, block_size: int) -> Iterator[Row]:
    """The rows of a pass, one by one."""
    start = 0
    for queries, length, table in zip(rows.query_lens, rows.key_lens, rows.block_table, strict=True):
        yield Row(start, start + queries, length, table[:-(-length // block_size)])
        start += queries


def _group(rows: Ids[Row]) -> Group:
    pages = torch.cat([row.pages for row in rows])
    return Group(rows, rows[0].length, torch.tensor([row.start for row in rows], device=pages.device), pages)


def _together(query: Tensor, keys: Tensor, values: Tensor, group: Group, spec: Spec) -> Tensor:
    """`query` [rows, heads, dim]. The heads that share keys are folded into the query length."""
    folded = query.reshape(len(group.rows), keys.shape[2], -1, query.shape[2])
    found = scaled_dot_product_attention(
        folded, _gather_all(keys, group, spec), _gather_all(values, group, spec), scale=spec.scale
    )
    return found.flatten(1, 2)


def _gather_all(cache: Tensor, group: Group, spec: Spec) -> Tensor:
    """[rows, kv_heads, keys, dim], of the keys that the queries see."""
    first = 0 if spec.window is None else max(0, group.length - spec.window)
    pages = cache.index_select(0, group.pages).view(len(group.rows), -1, *cache.shape[2:])
    return pages[:, first:group.length].transpose(1, 2)


def attend_row(query: Tensor, keys: Tensor, values: Tensor, row: Row, spec: Spec, out: Tensor) -> None:
    """Write one row's result into `out`; all tensors are those of the whole pass."""
    found = _attend(
        query[row.start:row.stop], _gather(keys, row), _gather(values, row), spec,
    )
    out[row.start:row.stop] = found


def _gather(cache: Tensor, row: Row) -> Tensor:
    return cache.index_select(0, row.pages).flatten(0, 1)[:row.length]


def _attend(query: Tensor, keys: Tensor, values: Tensor, spec: Spec) -> Tensor:
    """`query` [queries, heads, dim], `keys` and `values` [length, kv_heads, dim]."""
    if spec.softcap is not None:
        return _capped(query, keys, values, spec)
    if query.shape[0] == 1:
        return _single(query, keys, values, spec)
    queries, length = query.shape[0], keys.shape[0]
    plain = queries == length and (spec.window is None or spec.window >= length)
    found = scaled_dot_product_attention(
        query.transpose(0, 1)[None], keys.transpose(0, 1)[None], values.transpose(0, 1)[None],
        attn_mask=None if plain else visible(queries, length, spec.window, query.device), is_causal=plain,
        scale=spec.scale, enable_gqa=True,
    )
    return found[0].transpose(0, 1)


def _single(query: Tensor, keys: Tensor, values: Tensor, spec: Spec) -> Tensor:
    """One query: the heads that share keys are folded into the query length, several times faster on a CPU."""
    if spec.window is not None:
        keys, values = keys[-spec.window:], values[-spec.window:]
    folded = query.view(1, keys.shape[1], -1, query.shape[2])
    found = scaled_dot_product_attention(
        folded, keys.transpose(0, 1)[None], values.transpose(0, 1)[None], scale=spec.scale
    )
    return found.reshape(1, query.shape[1], values.shape[2])


def _capped(query: Tensor, keys: Tensor, values: Tensor, spec: Spec) -> Tensor:
    """Scores in the model's number format, softmax in float32, as Gemma-2's own code has it."""
    queries, length, group = query.shape[0], keys.shape[0], query.shape[1] // keys.shape[1]
    folded = query.reshape(queries, keys.shape[1], group, -1)
    scores = torch.einsum("qhgd,khd->hgqk", folded, keys) * spec.scale
    if spec.softcap is not None:
        scores = torch.tanh(scores / spec.softcap) * spec.softcap
    scores = scores.masked_fill(~visible(queries, length, spec.window, query.device), float("-inf"))
    weights = softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.einsum("hgqk,khd->qhgd", weights, values).flatten(1, 2)


def visible(queries: int, length: int, window: int | None, device: torch.device) -> Tensor:
    """Boolean [queries, length]: which keys each query sees, the last query all of them (or its window)."""
    place = torch.arange(length - queries, length, device=device)[:, None]
    key = torch.arange(length, device=device)[None]
    mask = key <= place
    return mask if window is None else mask & (key > place - window)
