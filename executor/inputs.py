"""From the rows of a forward pass to the tensors that the model runs on."""

from collections.abc import Mapping, Sequence as Ids
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..engine.errors import BackendFailed, PolicyError
from ..policies.base import Chunk, Forward, Sequence
from .attention.base import Rows
from .in_flight import Place, fill
from .own_pages import OwnPages
from .tables import BlockTables
from .tokens import Vocabulary, ids_of

NOTHING: Mapping[Sequence, Place] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Inputs:
    """One forward pass, its rows packed without padding. Everything is addressed per row.

    `ids` and `positions` int64 [1, tokens]; `slots` int64 [tokens]: where each token's keys go in the flattened cache;
    `last` int64 [sampling rows]: the token of each that yields the next one, in the order of `sampling`.
    """

    ids: Tensor
    positions: Tensor
    slots: Tensor
    rows: Rows
    last: Tensor
    sampling: Ids[Sequence]

    @property
    def decodes(self) -> bool:
        """Every row is one token and yields one."""
        return self.rows.max_q == 1 and len(self.sampling) == len(self.rows.query_lens)


class InputBuilder:
    """Reads sequences and their block tables; the ids of blocks are the policy's own, from 0 to `blocks - 1`.

    `own`: where pages come from if the policy keeps no block tables.
    """

    def __init__(
        self, vocabulary: Vocabulary, blocks: int, block_size: int, device: torch.device, own: OwnPages | None = None
    ) -> None:
        self._vocabulary = vocabulary
        self._block_size = block_size
        self._device = device
        self._tables = BlockTables(blocks, block_size, own)

    def build(self, forward: Forward, flying: Mapping[Sequence, Place] = NOTHING) -> Inputs:
        """`flying`: tokens that are still on the device, of sequences whose last token no one has seen yet.

        Raises `PolicyError` where a row cannot be addressed: a block that the pool does not have, too few blocks, two
        tokens with one place, a token that is not known; `BackendFailed` for drafts, which no model proposed.
        """
        chunks = list(forward.all_chunks())
        if any(chunk.drafts for chunk in chunks):
            raise BackendFailed("the executor has no draft model: turn the policy's speculation off")
        starts, lengths = _column([chunk.start for chunk in chunks]), _column([chunk.length for chunk in chunks])
        ends = starts + lengths
        table = self._tables.of([chunk.sequence for chunk in chunks], ends.tolist())
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        positions = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - starts, lengths)
        slots = self._slots(table, np.repeat(np.arange(len(chunks)), lengths), positions)
        samples = [row for row, chunk in enumerate(chunks) if chunk.samples]
        return Inputs(
            self._ids(chunks, offsets, flying)[None], self._put(positions)[None], self._put(slots),
            self._rows(table, offsets, lengths, ends), self._put(offsets[1:][samples] - 1),
            [chunks[row].sequence for row in samples],
        )

    def _ids(self, chunks: Ids[Chunk], offsets: NDArray[np.int64], flying: Mapping[Sequence, Place]) -> Tensor:
        found = np.zeros(offsets[-1], np.int64)
        late: dict[int, Place] = {}
        for row, chunk in enumerate(chunks):
            tokens = chunk.sequence.tokens
            known = min(chunk.end, len(tokens))
            if known < chunk.end:
                late[int(offsets[row + 1]) - 1] = _in_flight(chunk, known, flying)
            found[offsets[row]:offsets[row] + known - chunk.start] = ids_of(tokens, chunk.start, known)
        ids = self._put(self._vocabulary.of(found))
        if late:
            fill(ids, late)
        return ids

    def _slots(
        self, table: NDArray[np.int32], rows: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        size = self._block_size
        slots = table[rows, positions // size].astype(np.int64) * size + positions % size
        if len(np.unique(slots)) < len(slots):
            raise PolicyError("two tokens of one forward pass were given the same place in the KV cache")
        return slots

    def _rows(
        self, table: NDArray[np.int32], offsets: NDArray[np.int64], lengths: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Rows:
        keys = np.concatenate(([0], np.cumsum(ends)))
        host = torch.from_numpy(table)
        return Rows(
            query_lens=lengths.tolist(), key_lens=ends.tolist(), cu_seqlens_q=self._put(offsets.astype(np.int32)),
            cu_seqlens_k=self._put(keys.astype(np.int32)), seqused_k=self._put(ends.astype(np.int32)),
            block_table=self._move(host), host_table=host, max_q=int(lengths.max()), max_k=int(ends.max()),
        )

    def _put(self, array: NDArray[np.int32] | NDArray[np.int64]) -> Tensor:
        return self._move(torch.from_numpy(array))

    def _move(self, tensor: Tensor) -> Tensor:
        """Onto the device, without waiting for it."""
        if self._device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self._device, non_blocking=True)


def _in_flight(chunk: Chunk, known: int, flying: Mapping[Sequence, Place]) -> Place:
    """Where the last token of a chunk is, of which the first `known` tokens of the sequence are known."""
    place = flying.get(chunk.sequence)
    if place is None or known < chunk.end - 1:
        raise PolicyError(f"{chunk.sequence!r} computes tokens {chunk.start} to {chunk.end}, {known} are known")
    return place


def _column(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)
