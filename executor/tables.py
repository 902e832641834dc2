"""Block tables as arrays, kept from step to step as long as a sequence only gains blocks."""

from collections.abc import Sequence as Ids
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..engine.errors import PolicyError
from ..policies.base import Sequence
from .own_pages import OwnPages


@dataclass(slots=True)
class _Known:
    """A sequence's blocks as last seen, and the same as an array with room to grow."""

    blocks: list[int]
    array: NDArray[np.int32]


class BlockTables:
    """Converts what is new of each sequence's block table. Blocks are 0 to `blocks - 1`, of `block_size` tokens.

    `own`: where pages come from if the policy keeps no block tables.
    """

    def __init__(self, blocks: int, block_size: int, own: OwnPages | None = None) -> None:
        self._blocks = blocks
        self._block_size = block_size
        self._own = own
        self._known: dict[Sequence, _Known] = {}

    def of(self, sequences: Ids[Sequence], lengths: Ids[int]) -> NDArray[np.int32]:
        """[rows, pages]: the pages that hold the first `lengths` tokens of each sequence, 0 beyond them."""
        if self._own is not None:
            self._own.release()
        pages = [-(-length // self._block_size) for length in lengths]
        table = np.zeros((len(pages), max(pages)), dtype=np.int32)
        for row, (sequence, length) in enumerate(zip(sequences, lengths, strict=True)):
            blocks = sequence.block_table if self._own is None else self._own.of(sequence, length)
            table[row, :pages[row]] = self._row(sequence, blocks, pages[row])
        if len(self._known) > 4 * len(sequences) + 64:
            self._known = {sequence: self._known[sequence] for sequence in sequences}
        return table

    def _row(self, sequence: Sequence, blocks: list[int], pages: int) -> NDArray[np.int32]:
        if len(blocks) < pages:
            raise PolicyError(f"{sequence!r} has {len(blocks)} blocks in its table and the step needs {pages}")
        known = self._known.get(sequence)
        if known is None or known.blocks != blocks:
            known = self._known[sequence] = self._learn(sequence, list(blocks), known)
        return known.array[:pages]

    def _learn(self, sequence: Sequence, blocks: list[int], known: _Known | None) -> _Known:
        kept = len(known.blocks) if known is not None and blocks[:len(known.blocks)] == known.blocks else 0
        array = known.array if known is not None and len(blocks) <= len(known.array) else _room(len(blocks))
        if known is not None and array is not known.array:
            array[:kept] = known.array[:kept]
        array[kept:len(blocks)] = self._checked(sequence, blocks[kept:])
        return _Known(blocks, array)

    def _checked(self, sequence: Sequence, blocks: list[int]) -> list[int]:
        if blocks and not 0 <= min(blocks) <= max(blocks) < self._blocks:
            wrong = next(block for block in blocks if not 0 <= block < self._blocks)
            raise PolicyError(f"{sequence!r} lists block {wrong}, the KV cache has blocks 0 to {self._blocks - 1}")
        return blocks


def _room(blocks: int) -> NDArray[np.int32]:
    return np.zeros(max(16, blocks + blocks // 2), dtype=np.int32)
