"""Collects the steps of a run compactly and turns them into the step table."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrow import integers, lists, table
from .schema import STEP_COLUMNS

COUNTS: tuple[str, ...] = tuple(c.name for c in STEP_COLUMNS if c.kind == "int" and c.name != "step")
"""The whole-number columns of a step, in the order in which `StepTable.append` takes them."""

_CONTEXT, _KV, _KV_END = (COUNTS.index(name) for name in ("context_tokens", "kv_used", "kv_used_end"))
_WIDTHS = next(c for c in STEP_COLUMNS if c.name == "forward_widths")
_BLOCK = 8_192
_BLOCK_STEPS = 262_144

Row = tuple[int, ...]


class _Series(NamedTuple):
    starts: NDArray[np.int64] | None  # None: each starts when the one before it ends
    ends: NDArray[np.int64]
    kv_used: NDArray[np.int64]
    kv_used_end: NDArray[np.int64]
    context_increment: int
    device: NDArray[np.float64]


class StepTable:
    """The step table in the making.

    Times come in as integer nanoseconds of the run's clock and are written as seconds. Appended steps wait as tuples
    and are packed into arrays some thousands at a time: about a microsecond and 170 bytes a step.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[Row, int, int, float, float]] = []
        self._series: dict[int, _Series] = {}  # by place in _entries
        self._series_steps = 0
        self._closed = 0
        self._columns: dict[str, _Growing] = {}
        self._split: list[tuple[int, tuple[int, ...]]] = []  # (step, widths) of steps with several forwards

    def __len__(self) -> int:
        """Steps so far."""
        return self._closed + len(self._entries) - len(self._series) + self._series_steps

    def append(
        self, row: Row, start_ns: int, end_ns: int, host: float = 0.0, device: float = 0.0,
        widths: tuple[int, ...] | None = None,
    ) -> None:
        """One step. `row`: the `COUNTS`, in order. `host` and `device` in seconds.

        `widths`: of each forward pass, where the step has several (left out: one pass of `forward_width`, or none).
        """
        if widths is not None:
            self._split.append((len(self), widths))
        self._entries.append((row, start_ns, end_ns, host, device))
        if len(self._entries) >= _BLOCK:
            self._pack()

    def append_series(
        self, row: Row, start_ns: int | NDArray[np.int64], ends_ns: NDArray[np.int64], kv_used: Sequence[int],
        kv_used_end: Sequence[int] | None = None, *, context_increment: int, host: float = 0.0,
        device: Sequence[float] | NDArray[np.float64] | None = None,
    ) -> None:
        """`len(ends_ns)` steps of one forward each that differ in their times, KV use and context only.

        `row` holds the counts of the first; `context_tokens` grows by `context_increment` a step. Step i ends at
        `ends_ns[i]` and starts at `start_ns[i]`, or, where that is a number, when the one before it ended, the first
        then. `kv_used` and `kv_used_end` have one value a step (the latter left out: they are equal). `host` seconds
        are those of each step, `device` has one value a step.
        """
        steps = len(ends_ns)
        seconds = np.zeros(steps) if device is None else np.asarray(device, dtype=np.float64)
        starts = None if isinstance(start_ns, int) else np.array(start_ns, np.int64)
        used = np.array(kv_used, np.int64)
        after = used if kv_used_end is None else np.array(kv_used_end, np.int64)
        if not steps == len(used) == len(after) == len(seconds) == (steps if starts is None else len(starts)):
            raise ValueError(f"a series of {steps} ends, {len(used)} KV counts and {len(seconds)} device times")
        if not steps:
            return
        series = _Series(starts, np.array(ends_ns, np.int64), used, after, context_increment, seconds)
        self._series[len(self._entries)] = series
        self._series_steps += steps
        self._entries.append((row, start_ns if isinstance(start_ns, int) else int(start_ns[0]), 0, host, 0.0))
        if len(self._entries) >= _BLOCK or self._series_steps >= _BLOCK_STEPS:
            self._pack()

    def build(self) -> Any:
        """The step table (`STEP_COLUMNS`). The collected steps are given up: once only."""
        self._pack()
        steps, self._closed = self._closed, 0
        data: dict[str, Any] = {"step": np.arange(steps, dtype=np.int64)}
        for name in (column.name for column in STEP_COLUMNS if column.name not in (_WIDTHS.name, "step")):
            data[name] = self._columns.pop(name).close() if steps else []
        data[_WIDTHS.name] = self._forward_widths(np.asarray(data["forward_width"], dtype=np.int64))
        return table(STEP_COLUMNS, data)

    def _pack(self) -> None:
        if not self._entries:
            return
        rows, starts, ends, hosts, devices = zip(*self._entries, strict=True)
        block = _Block(_matrix(rows), list(self._series), list(self._series.values()))
        self._closed = len(self)
        self._entries, self._series, self._series_steps = [], {}, 0
        self._keep_times(block, starts, ends, hosts, devices)
        for name, values in zip(COUNTS, block.counts(), strict=True):
            self._keep(name, integers(name, values))

    def _keep_times(self, block: "_Block", starts: Any, ends: Any, hosts: Any, devices: Any) -> None:
        start_ns, end_ns = block.times(np.array(starts, np.int64), np.array(ends, np.int64))
        self._keep("t_start", start_ns / 1e9)
        self._keep("t_end", end_ns / 1e9)
        self._keep("host_seconds", block.spread(np.array(hosts, np.float64)))
        self._keep("device_seconds", block.fill(np.array(devices, np.float64), [s.device for s in block.series]))

    def _keep(self, name: str, values: NDArray[Any]) -> None:
        if name not in self._columns:
            self._columns[name] = _Growing(values.dtype)
        self._columns[name].extend(values)

    def _forward_widths(self, width: NDArray[np.int64]) -> Any:
        sizes = (width > 0).astype(np.int64)
        split = np.array([step for step, _ in self._split], dtype=np.int64)
        sizes[split] = [len(widths) for _, widths in self._split]
        values = np.repeat(width, sizes)
        special = np.zeros(len(width), dtype=bool)
        special[split] = True
        values[np.repeat(special, sizes)] = [w for _, widths in self._split for w in widths]
        self._split = []
        return lists(values, sizes, _WIDTHS)


class _Growing:
    """An array that grows in place: many small parts would leave the heap full of holes."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._values = np.empty(_BLOCK, dtype)
        self._used = 0

    def extend(self, values: NDArray[Any]) -> None:
        end = self._used + len(values)
        if end > len(self._values):
            self._values.resize(max(end, len(self._values) * 5 // 4), refcheck=False)
        self._values[self._used:end] = values
        self._used = end

    def close(self) -> NDArray[Any]:
        self._values.resize(self._used, refcheck=False)
        return self._values


class _Block:
    """Entries on their way into arrays: each stands for one step or for a series of them."""

    def __init__(self, rows: NDArray[np.int64], places: list[int], series: list[_Series]) -> None:
        self.rows = rows
        self.series = series
        self.lengths = np.ones(len(rows), dtype=np.int64)
        self.lengths[places] = [len(s.ends) for s in series]
        in_series = np.zeros(len(rows), dtype=bool)
        in_series[places] = True
        self.in_series = self.spread(in_series)
        self.increments = np.zeros(len(rows), dtype=np.int64)
        self.increments[places] = [s.context_increment for s in series]

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """A value per entry as a value per step."""
        return np.repeat(values, self.lengths) if self.series else values

    def fill(self, values: NDArray[Any], of_series: list[NDArray[Any]]) -> NDArray[Any]:
        """Like `spread`, with the steps of the series taking their own values."""
        steps = self.spread(values)
        if self.series:
            steps[self.in_series] = np.concatenate(of_series)
        return steps

    def place(self) -> NDArray[np.int64]:
        """The place of each step within its entry."""
        places = np.arange(int(self.lengths.sum()), dtype=np.int64)
        places -= self.spread(np.cumsum(self.lengths) - self.lengths)
        return places

    def times(
        self, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        start, end = self.spread(starts), self.fill(ends, [s.ends for s in self.series])
        if self.series:
            later = np.flatnonzero(self.place())
            start[later] = end[later - 1]
            self._own_starts(start)
        return start, end

    def _own_starts(self, start: NDArray[np.int64]) -> None:
        places = np.flatnonzero(self.in_series)
        lengths = [len(s.ends) for s in self.series]
        for series, first in zip(self.series, np.cumsum(lengths) - lengths, strict=True):
            if series.starts is not None:
                start[places[first:first + len(series.ends)]] = series.starts

    def counts(self) -> list[NDArray[np.int64]]:
        """The whole-number columns, a value per step."""
        columns = [self.spread(self.rows[:, i]) for i in range(len(COUNTS))]
        if self.series:
            columns[_CONTEXT] = columns[_CONTEXT] + self.place() * self.spread(self.increments)
            columns[_KV] = self.fill(self.rows[:, _KV], [s.kv_used for s in self.series])
            columns[_KV_END] = self.fill(self.rows[:, _KV_END], [s.kv_used_end for s in self.series])
        return columns


def _matrix(rows: Sequence[Row]) -> NDArray[np.int64]:
    lengths = {len(row) for row in rows}
    if lengths != {len(COUNTS)}:
        raise ValueError(f"a step has {len(COUNTS)} counts ({', '.join(COUNTS)}); got rows of {sorted(lengths)}")
    values = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(COUNTS))
    return values.reshape(len(rows), len(COUNTS))
