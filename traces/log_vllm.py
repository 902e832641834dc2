"""vLLM's interval log line, as its engine 000 would have printed it."""

from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .run import Run

INTERVAL = 10.0
"""Seconds between two lines (VLLM_LOG_STATS_INTERVAL)."""

RECENT = 1000
"""Requests over which the engine averages its hit rate, as long as the latest look-ups are not more."""


@dataclass(frozen=True, slots=True)
class VllmLine:
    """One printed line, at `time` (seconds). Throughputs in tokens per second of the window before it; `running`,
    `waiting` and `kv_usage` (percent) after the last commit before it; `hit_rate` in percent.
    `forward_width` of the step of that commit is not in the engine's line."""

    time: float
    prompt_throughput: float
    generation_throughput: float
    running: int
    waiting: int
    kv_usage: float
    hit_rate: float
    forward_width: int

    @property
    def text(self) -> str:
        return (
            f"Engine 000: Avg prompt throughput: {self.prompt_throughput:.1f} tokens/s, "
            f"Avg generation throughput: {self.generation_throughput:.1f} tokens/s, Running: {self.running} reqs, "
            f"Waiting: {self.waiting} reqs, GPU KV cache usage: {self.kv_usage:.1f}%, "
            f"Prefix cache hit rate: {self.hit_rate:.1f}%"
        )


def stamp(moment: datetime) -> str:
    return f"INFO {moment:%m-%d %H:%M:%S} [loggers.py:310] "


def lines(run: Run, interval: float = INTERVAL, **_: Any) -> list[VllmLine]:
    """The lines of a run whose logger started with it, one tick every `interval` seconds, to the end of the run.

    A prompt counts when its first token is there, with the tokens that were not a prefix hit; a generated token when
    its step ends. Where nothing counted in a window and in the one before it, the line goes to DEBUG and is left out.
    """
    if not 0 < interval < inf:
        raise ValueError(f"interval: {interval} seconds; it has to be above 0")
    log = _Log(run, interval)
    active = np.union1d(log.prompt.ticks, log.generated.ticks)
    shown = np.union1d(active, active + 1)
    return [log.line(tick) for tick in shown[shown <= log.last].tolist()]


class _Counter:
    """Tokens by the tick in whose window they fall."""

    def __init__(self, ticks: NDArray[np.int64], tokens: NDArray[np.int64]) -> None:
        self.ticks, places = np.unique(ticks[tokens > 0], return_inverse=True)
        self._sums = np.bincount(places, tokens[tokens > 0], len(self.ticks))

    def at(self, tick: int) -> float:
        place = int(np.searchsorted(self.ticks, tick))
        return float(self._sums[place]) if place < len(self.ticks) and self.ticks[place] == tick else 0.0


class _Log:
    """What the logger's counters and gauges hold at a tick."""

    def __init__(self, run: Run, interval: float) -> None:
        self._run = run
        self._interval = interval
        self._ended = _ticks(run.column("t_end"), interval)
        self.last = int(self._ended.max(initial=0))
        self.generated = _Counter(self._ended, run.column("sampled_tokens"))
        first, computed = _prompts(run)
        self.prompt = _Counter(_ticks(first, interval), computed)
        self._rates = _rates(run)

    def line(self, tick: int) -> VllmLine:
        steps = int(np.searchsorted(self._ended, tick, side="right"))  # that are committed
        last = {name: self._last(name, steps) for name in ("running_end", "waiting_end", "forward_width")}
        return VllmLine(
            tick * self._interval, self.prompt.at(tick) / self._interval, self.generated.at(tick) / self._interval,
            last["running_end"], last["waiting_end"], self._usage(steps), float(self._rates[steps]),
            last["forward_width"],
        )

    def _last(self, name: str, steps: int) -> int:
        return int(self._run.column(name)[steps - 1]) if steps else 0

    def _usage(self, steps: int) -> float:
        total = self._last("kv_total", steps)
        return 100 * self._last("kv_used_end", steps) / total if total else 0.0


def _ticks(seconds: NDArray[np.float64], interval: float) -> NDArray[np.int64]:
    """The first tick (from 1) at or after each time; in whole nanoseconds, so that a time on a tick belongs to it."""
    moments, step = np.rint(seconds * 1e9).astype(np.int64), max(1, round(interval * 1e9))
    return np.maximum(-(-moments // step), 1)


def _prompts(run: Run) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """When the first token of each request was there, and the prompt tokens that were computed for it."""
    names = ("first_token", "prompt_tokens", "cached_tokens")
    first, prompt, cached = (run.requests[name].to_numpy() for name in names)
    came = ~np.isnan(first)
    return first[came], (prompt - cached)[came].astype(np.int64)


def _rates(run: Run) -> NDArray[np.float64]:
    """Percent of recent look-ups that hit, after each number of commits (from 0).

    Look-ups are told with the next commit: of their own step, or of the one before it where steps overlap.
    """
    start, end = run.column("t_start"), run.column("t_end")
    requests, queries, hits = (run.column(name) for name in ("admitted", "prefix_queries", "prefix_hits"))
    looked = np.flatnonzero(queries)
    sums = [np.concatenate([[0], np.cumsum(column[looked])]) for column in (requests, queries, hits)]
    told = np.maximum(np.searchsorted(start, end, side="left"), np.arange(1, len(end) + 1))
    upto = np.concatenate([[0], np.searchsorted(looked, told)])
    since = np.minimum(np.searchsorted(sums[0], sums[0][upto] - RECENT), np.maximum(upto - 1, 0))
    asked, found = (column[upto] - column[since] for column in sums[1:])
    return np.asarray(100 * found / np.maximum(asked, 1), dtype=np.float64)
