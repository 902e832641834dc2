"""CUDA graphs for decode steps: captured once at padded batch sizes, replayed on static buffers."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from .attention.base import Rows
from .inputs import Inputs

Forward = Callable[[Inputs], Tensor]
"""Runs one pass, all on the device; the token of each sampling row, int64 [rows]."""

Capture = Callable[[Callable[[], None]], Callable[[], None]]
"""Records what a call does on the device; the result does it again."""


def padded_sizes(most: int) -> list[int]:
    """Rows of the captured passes, for batches of up to `most`: 1, 2, 4, 8, then steps of 16."""
    return [size for size in (1, 2, 4, 8) if size < most] + [*range(16, most, 16), _up(most)]


def _up(rows: int) -> int:
    return next((size for size in (1, 2, 4, 8) if rows <= size), -(-rows // 16) * 16)


class StaticInputs:
    """Buffers at fixed places for batches of up to `rows` decode rows, each with up to `pages` pages.

    Padding rows are one token at position 0 whose keys go to the `spare` block, which no sequence has.
    """

    def __init__(self, rows: int, pages: int, block_size: int, spare: int, device: torch.device) -> None:
        self._pages = pages
        self._most_keys = pages * block_size
        self._spare, self._spare_slot = spare, spare * block_size
        self._ids = torch.zeros(1, rows, dtype=torch.int64, device=device)
        self._positions = torch.zeros_like(self._ids)
        self._slots = torch.full((rows,), self._spare_slot, dtype=torch.int64, device=device)
        self._lengths = torch.ones(rows, dtype=torch.int32, device=device)
        self._ends = torch.arange(rows + 1, dtype=torch.int32, device=device)
        self._table = torch.full((rows, pages), spare, dtype=torch.int32, device=device)
        self._last = torch.arange(rows, dtype=torch.int64, device=device)
        self._starts = torch.arange(rows + 1, dtype=torch.int32, device=device)

    def view(self, rows: int) -> Inputs:
        """The first `rows` rows. The longest context is a bound, the same in every pass."""
        table = self._table[:rows]
        packed = Rows(
            [1] * rows, [self._most_keys] * rows, self._starts[:rows + 1], self._ends[:rows + 1], self._lengths[:rows],
            table, table, 1, self._most_keys,
        )
        return Inputs(self._ids[:, :rows], self._positions[:, :rows], self._slots[:rows], packed, self._last[:rows], ())

    def fill(self, inputs: Inputs, rows: int) -> None:
        """Copy a batch in; what is left of `rows` becomes padding."""
        count, pages = len(inputs.rows.query_lens), inputs.rows.block_table.shape[1]
        self._ids[:, :count].copy_(inputs.ids)
        self._positions[:, :count].copy_(inputs.positions)
        self._slots[:count].copy_(inputs.slots)
        self._lengths[:count].copy_(inputs.rows.seqused_k)
        self._table[:count, :pages].copy_(inputs.rows.block_table)
        self._ids[:, count:rows].zero_()
        self._positions[:, count:rows].zero_()
        self._slots[count:rows].fill_(self._spare_slot)
        self._lengths[count:rows].fill_(1)
        self._table[count:rows, :1].fill_(self._spare)
        self._ends[1:rows + 1].copy_(self._lengths[:rows].cumsum(0))

    def takes(self, inputs: Inputs) -> bool:
        return inputs.rows.block_table.shape[1] <= self._pages


class DecodeGraphs:
    """Graphs of one forward pass over 1 token a row, the largest captured first so that the others share its memory."""

    def __init__(self, forward: Forward, static: StaticInputs, sizes: Iterable[int], capture: Capture) -> None:
        self._static = static
        self._replays: dict[int, Callable[[], None]] = {}
        self._outputs: dict[int, Tensor] = {}
        for size in sorted(sizes, reverse=True):
            self._add(forward, size, capture)
        self._sizes = sorted(self._replays)

    def _add(self, forward: Forward, size: int, capture: Capture) -> None:
        inputs = self._static.view(size)
        output = self._outputs[size] = torch.zeros_like(inputs.last)

        def run() -> None:
            output.copy_(forward(inputs))

        self._replays[size] = capture(run)

    @property
    def sizes(self) -> list[int]:
        return self._sizes

    def takes(self, inputs: Inputs) -> bool:
        """A pure decode pass that is not larger than what was captured."""
        return inputs.decodes and len(inputs.sampling) <= self._sizes[-1] and self._static.takes(inputs)

    def run(self, inputs: Inputs) -> Tensor:
        """The token of each row, as `forward` would give."""
        rows = len(inputs.sampling)
        size = next(size for size in self._sizes if rows <= size)
        self._static.fill(inputs, size)
        self._replays[size]()
        return self._outputs[size][:rows].clone()


class CudaCapture:
    """Captures into CUDA graphs with one pool of memory."""

    WARM_UP = 2

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(self.WARM_UP):
                run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            run()
        self._pool = graph.pool() if self._pool is None else self._pool
        replay: Callable[[], None] = graph.replay
        return replay
