"""Attention in plain torch, a sequence at a time, on any device."""

from collections.abc import Iterator, Sequence as Ids
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, softmax
from torch.nn.utils.rnn import pad_sequence

from .base import Attention, Needs, Rows, Spec

SHORT = 512
"""Keys up to which decoding rows of about one length are done together; beyond, one by one is as fast."""

FEW, MANY = 4, 16
"""Rows that are worth doing together, and so many that what is gathered for them stays in the processor's cache."""

NEAR = 1.25
"""Most keys of a row among those done together, against the fewest."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a pass: its queries are tokens `start` to `stop`, its keys the first `length` of `pages`."""

    start: int
    stop: int
    length: int
    pages: Tensor


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one query each. `length`: keys of the longest. `tokens` int64 [rows], `pages` those of all rows in order,
    as many for each as the longest has. `lengths` int64 [rows, 1] and `beyond` int64, the gathered tokens between a
    row's end and that of the longest, are None if all are equal. `masks`: by window, once made.
    """

    rows: Ids[Row]
    length: int
    tokens: Tensor
    pages: Tensor
    lengths: Tensor | None
    beyond: Tensor | None
    masks: dict[int | None, Tensor] = field(default_factory=dict)


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
        self._rows, self._groups, short = [], [], list[Row]()
        for row in each_row(rows, block_size):
            (short if row.stop - row.start == 1 and row.length <= SHORT else self._rows).append(row)
        for some in _near(sorted(short, key=lambda row: row.length)):
            if len(some) < FEW:
                self._rows += some
            else:
                self._groups.append(_group(some, block_size))

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


def _near(rows: Ids[Row]) -> Iterator[Ids[Row]]:
    """Rows in order of length, up to `MANY` of about one length at a time."""
    first = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or at - first == MANY or rows[at].length > NEAR * rows[first].length:
            yield rows[first:at]
            first = at


def _group(rows: Ids[Row], block_size: int) -> Group:
    """The last row is the longest. What others lack in pages is page 0."""
    pages = pad_sequence([row.pages for row in rows], batch_first=True)
    starts = torch.tensor([row.start for row in rows], device=pages.device)
    lengths = beyond = None
    if rows[0].length < rows[-1].length:
        lengths = torch.tensor([[row.length] for row in rows], device=pages.device)
        place = torch.arange(pages.shape[1] * block_size, device=pages.device)
        beyond = ((place >= lengths) & (place < rows[-1].length)).flatten().nonzero().flatten()
    return Group(rows, rows[-1].length, starts, pages.flatten(), lengths, beyond)


def _together(query: Tensor, keys: Tensor, values: Tensor, group: Group, spec: Spec) -> Tensor:
    """`query` [rows, heads, dim]. The heads that share keys are folded into the query length."""
    folded = query.reshape(len(group.rows), keys.shape[2], -1, query.shape[2])
    first = 0 if spec.window is None else max(0, group.rows[0].length - spec.window)
    found = scaled_dot_product_attention(
        folded, _gather_all(keys, group, first), _gather_all(values, group, first),
        _seen(group, first, spec.window, query.dtype),
        scale=spec.scale,
    )
    return found.flatten(1, 2)


def _seen(group: Group, first: int, window: int | None, dtype: torch.dtype) -> Tensor | None:
    """[rows, 1, 1, keys from `first` on]: 0 for those that the queries see, else -inf; None: they see all."""
    if group.lengths is None:
        return None
    if window not in group.masks:
        place = torch.arange(first, group.length, device=group.lengths.device)
        hidden = place >= group.lengths
        if window is not None:
            hidden |= place < group.lengths - window
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))
        group.masks[window] = mask[:, None, None]
    return group.masks[window]


def _gather_all(cache: Tensor, group: Group, first: int) -> Tensor:
    """[rows, kv_heads, keys from `first` on, dim]. What a row does not own may hold anything, so it is zeroed."""
    found = cache.index_select(0, group.pages).flatten(0, 1)
    if group.beyond is not None:
        found.index_fill_(0, group.beyond, 0)
    return found.view(len(group.rows), -1, *cache.shape[2:])[:, first:group.length].transpose(1, 2)


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
