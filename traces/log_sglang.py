"""SGLang's log lines, as its scheduler would have printed them."""

from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .run import Run

INTERVAL = 40.0
"""Decode steps between two Decode lines (decode_log_interval)."""

RETRACT = "KV cache pool is full. "


@dataclass(frozen=True, slots=True)
class SglangLine:
    """One printed line. `kind`: prefill, decode or retract. `running`, `waiting` as the line shows them (of a retract
    line, the step's gauges); `forward_width` of that same step is not in the engine's line. `time` in seconds."""

    time: float
    kind: str
    running: int
    waiting: int
    forward_width: int
    text: str


def stamp(moment: datetime) -> str:
    return f"[{moment:%Y-%m-%d %H:%M:%S}] "


def lines(run: Run, interval: float = INTERVAL, *, graph: str = "cuda graph", **_: Any) -> list[SglangLine]:
    """The lines of a run: one for each step that prefills and one for every `interval`-th that only decodes, both when
    its output is there, and one for each retraction.

    A step's queue and token usage are those after its output was processed; with overlap another one has been
    scheduled by then. Throughputs are per second since the line of the same kind before it. `graph`: what the engine
    calls its captured graphs on this device; on a CPU it captures none. Raises ValueError for an `interval` below 1.
    """
    if not 1 <= interval < inf:
        raise ValueError(f"interval: {interval} decode steps; it has to be at least 1")
    columns = _Columns(run)
    found = [*_prefills(columns, graph), *_decodes(columns, int(interval), graph), *_retractions(run, columns)]
    return sorted(found, key=lambda line: (line.time, line.kind == "retract"))


class _Columns:
    """What the lines are made of; `used` in tokens, `usage` of the whole pool."""

    def __init__(self, run: Run) -> None:
        names = (
            "t_start", "t_end", "running", "waiting", "forward_width", "prefill_seqs", "decode_seqs", "cached_tokens",
            "waiting_end", "logged_tokens", "pending_tokens", "kv_used_end", "kv_total",
        )
        self._columns = {name: run.column(name) for name in names}
        page_size = run.meta.get("config", {}).get("engine", {}).get("block_size", 1)
        self.used = self["kv_used_end"] * page_size
        self.usage = self["kv_used_end"] / np.maximum(self["kv_total"], 1)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    def line(self, step: int, kind: str, running: int, text: str) -> SglangLine:
        waiting, width = int(self["waiting_end"][step]), int(self["forward_width"][step])
        return SglangLine(float(self["t_end"][step]), kind, running, waiting, width, text)


def _prefills(columns: _Columns, graph: str) -> list[SglangLine]:
    found, before = [], 0.0
    for step in np.flatnonzero(columns["prefill_seqs"]).tolist():
        now, tokens, running = columns["t_end"][step], columns["logged_tokens"][step], int(columns["running"][step])
        found.append(columns.line(step, "prefill", running, (
            f"Prefill batch, #new-seq: {columns['prefill_seqs'][step]}, #new-token: {tokens}, "
            f"#cached-token: {columns['cached_tokens'][step]}, token usage: {columns.usage[step]:.2f}, "
            f"#running-req: {running}, #queue-req: {columns['waiting_end'][step]}, "
            f"#pending-token: {columns['pending_tokens'][step]}, {graph}: False, "
            f"input throughput (token/s): {_rate(tokens, now - before):.2f}"
        )))
        before = now
    return found


def _decodes(columns: _Columns, interval: int, graph: str) -> list[SglangLine]:
    decodes = np.flatnonzero((columns["forward_width"] > 0) & (columns["prefill_seqs"] == 0))
    generated = np.cumsum(columns["decode_seqs"][decodes])
    found, before, done = [], 0.0, 0
    for place in range(interval - 1, len(decodes), interval):
        step = int(decodes[place])
        now, tokens, rows = columns["t_end"][step], generated[place] - done, int(columns["decode_seqs"][step])
        found.append(columns.line(step, "decode", rows, (
            f"Decode batch, #running-req: {rows}, #token: {columns.used[step]}, "
            f"token usage: {columns.usage[step]:.2f}, {graph}: {graph != 'cpu graph'}, "
            f"gen throughput (token/s): {_rate(tokens, now - before):.2f}, #queue-req: {columns['waiting_end'][step]}"
        )))
        before, done = now, generated[place]
    return found


def _retractions(run: Run, columns: _Columns) -> list[SglangLine]:
    """They are in the run's record, by step."""
    found = []
    for event in run.meta.get("events", ()):
        where, _, text = event.partition(": ")
        if text.startswith(RETRACT):
            step = int(where.removeprefix("step "))
            running, waiting, width = (int(columns[name][step]) for name in ("running", "waiting", "forward_width"))
            found.append(SglangLine(float(columns["t_start"][step]), "retract", running, waiting, width, text))
    return found


def _rate(tokens: float, seconds: float) -> float:
    return tokens / seconds if seconds > 0 else 0.0
