"""Where records become tables: some thousands at a time, so that memory does not grow with the log."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from ..arrow import arrow_schema, integers, lists, table
from ..rows import run_from_rows
from ..run_files import REQUESTS, SAMPLES, STEPS
from ..schema import REQUEST_COLUMNS, SAMPLE_COLUMNS, STEP_COLUMNS
from .record import Record

BATCH = 1 << 15
_PLAIN = tuple(c.name for c in SAMPLE_COLUMNS if c.name not in ("time", "rank", "preemptions"))
_plain = attrgetter(*_PLAIN)
_WIDTHS = next(c for c in STEP_COLUMNS if c.name == "forward_widths")
_COUNTS = tuple(c.name for c in STEP_COLUMNS if c.kind == "int" and c.name != "step")
_AFTER = (("running_end", "running"), ("waiting_end", "waiting"), ("kv_used_end", "kv_used"))


class Sink:
    """Writes samples.parquet (where there are any), steps.parquet and requests.parquet into `folder`.

    `known`: the step columns that the log told.
    """

    def __init__(self, folder: Path) -> None:
        self.samples = _Growing(folder / SAMPLES, SAMPLE_COLUMNS, _samples)
        self.steps = _Growing(folder / STEPS, STEP_COLUMNS, _steps)
        self.requests = _Growing(folder / REQUESTS, REQUEST_COLUMNS, _requests)
        self.known: set[str] = set()

    def sample(self, record: Record, time: float, rank: int, preemptions: int | None) -> None:
        self.samples.append((time, rank, preemptions, *_plain(record)))

    def step(self, start: float, end: float, counts: Mapping[str, int]) -> None:
        self.known.update(counts)
        self.steps.append((start, end, counts))

    def close(self) -> None:
        """Writes what is left. A table without rows is written all the same, except the samples'."""
        if self.samples.rows:
            self.samples.close()
        self.steps.close()
        self.requests.close()


class _Growing:
    """A Parquet file in the making; `build(rows, first)` makes a table of the rows from number `first` on."""

    def __init__(self, path: Path, columns: Any, build: Callable[[list[Any], int], Any]) -> None:
        self._path = path
        self._schema = arrow_schema(columns)
        self._build = build
        self._waiting: list[Any] = []
        self._writer: Any = None
        self.rows = 0

    def append(self, row: Any) -> None:
        self._waiting.append(row)
        self.rows += 1
        if len(self._waiting) >= BATCH:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        from pyarrow import parquet

        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._path, self._schema, compression="zstd")
        rows, self._waiting = self._waiting, []
        self._writer.write_table(self._build(rows, self.rows - len(rows)))


def _samples(rows: list[Any], first: int) -> Any:
    columns = zip(*rows, strict=True) if rows else ([] for _ in SAMPLE_COLUMNS)
    return table(SAMPLE_COLUMNS, dict(zip(("time", "rank", "preemptions", *_PLAIN), map(list, columns), strict=True)))


def _steps(rows: list[Any], first: int) -> Any:
    data: dict[str, Any] = {name: np.zeros(len(rows), np.int64) for name in _COUNTS}
    for place, (_, _, counts) in enumerate(rows):
        for name, value in counts.items():
            data[name][place] = value
    for after, before in _AFTER:
        data[after] = data[before]
    data = {name: integers(name, values) for name, values in data.items()}
    width = data["forward_width"].astype(np.int64)
    data |= {
        "step": np.arange(first, first + len(rows)), "t_start": [row[0] for row in rows],
        "t_end": [row[1] for row in rows], "host_seconds": np.zeros(len(rows)), "device_seconds": np.zeros(len(rows)),
        "forward_widths": lists(width[width > 0], (width > 0).astype(np.int64), _WIDTHS),
    }
    return table(STEP_COLUMNS, data)


def _requests(rows: list[Any], first: int) -> Any:
    return run_from_rows(requests=({"id": f"r{first + place}", **row} for place, row in enumerate(rows))).requests
