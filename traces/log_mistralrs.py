"""mistral.rs's interval log line, as its logger thread would have printed it."""

from dataclasses import dataclass
from math import inf
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .run import Run

TARGET = "mistralrs_core::engine::logger"
INTERVAL = 5.0
"""Seconds between two ticks, fixed in the engine."""

Rate = Literal["interval", "lifetime"]
Throughput = Literal["generated", "logged"]


@dataclass(frozen=True, slots=True)
class MistralrsLine:
    """One printed line. `tokens` and `hit_rate` (percent, None: left out) are those of the window before `time`
    (seconds), `throughput` is tokens per second of it. `running`, `waiting`: the engine's gauges as the last
    scheduling before the tick set them. `forward_width` of that same step is not in the engine's line."""

    time: float
    tokens: int
    throughput: float
    hit_rate: float | None
    running: int
    waiting: int
    forward_width: int

    @property
    def text(self) -> str:
        rate = "" if self.hit_rate is None else f", Prefix cache hitrate {self.hit_rate:.2f}%"
        return f"Throughput (T/s) {self.throughput:.2f}{rate}, {self.running} running, {self.waiting} waiting"


def lines(
    run: Run, interval: float = INTERVAL, *, rate: Rate = "interval", throughput: Throughput = "generated",
    hits_of: str = "arrived",
) -> list[MistralrsLine]:
    """The lines of a run whose logger started with it, one tick every `interval` seconds.

    A request counts as new when the engine takes it in, which is when the next step is scheduled, not when it was
    sent; a prefix hit counts when it is scheduled; tokens count when the step ends. Both are differenced at every
    tick, printed or not. A line is printed if any request has ever come and the window has tokens.
    `rate`: "lifetime" is the behaviour before the rate was differenced (always shown). `throughput`: "logged" counts
    what the engine's logger counts (re-prefilled tokens too), "generated" the sampled tokens. `hits_of`: the column
    that the hit rate is a share of; this engine takes hits against arrivals.
    """
    _check(interval, rate, throughput)
    column = "logged_tokens" if throughput == "logged" else "sampled_tokens"
    started, ended = _ticks(run.column("t_start"), interval), _ticks(run.column("t_end"), interval)
    tokens = run.column(column)
    ticks = np.unique(ended[tokens > 0])
    seen = _Counters(run, started, hits_of)
    in_window = np.bincount(np.searchsorted(ticks, ended[tokens > 0]), tokens[tokens > 0], len(ticks))
    return [
        line for tick, count in zip(ticks.tolist(), in_window.tolist(), strict=True)
        if (line := seen.line(tick, int(count), interval, rate)) is not None
    ]


def _check(interval: float, rate: str, throughput: str) -> None:
    if not 0 < interval < inf:
        raise ValueError(f"interval: {interval} seconds; it has to be above 0")
    for name, value, allowed in (("rate", rate, get_args(Rate)), ("throughput", throughput, get_args(Throughput))):
        if value not in allowed:
            raise ValueError(f"{name}: {value!r}; it has to be one of {', '.join(allowed)}")


def _ticks(seconds: NDArray[np.float64], interval: float) -> NDArray[np.int64]:
    """The first tick (from 1) at or after each time; in whole nanoseconds, so that a time on a tick belongs to it."""
    moments, step = np.rint(seconds * 1e9).astype(np.int64), max(1, round(interval * 1e9))
    return np.maximum(-(-moments // step), 1)


class _Counters:
    """What the logger's counters and gauges hold at a tick."""

    def __init__(self, run: Run, started: NDArray[np.int64], hits_of: str) -> None:
        self.started = started  # tick by which each step had been scheduled; ascending
        self.new = np.concatenate([[0], np.cumsum(run.column("arrived"))])
        self.asked = np.concatenate([[0], np.cumsum(run.column(hits_of))])
        self.hits = np.concatenate([[0], np.cumsum(run.column("prefix_hits"))])
        self.gauges: dict[str, Any] = {
            name: np.concatenate([[0], run.column(name)]) for name in ("running", "waiting", "forward_width")
        }

    def line(self, tick: int, tokens: int, interval: float, rate: Rate) -> MistralrsLine | None:
        before, now = (int(i) for i in np.searchsorted(self.started, [tick - 1, tick], side="right"))
        if not self.new[now]:
            return None
        hit_rate = self._rate(0 if rate == "lifetime" else before, now)
        gauges = {name: int(values[now]) for name, values in self.gauges.items()}
        return MistralrsLine(tick * interval, tokens, tokens / interval, hit_rate, **gauges)

    def _rate(self, before: int, now: int) -> float | None:
        asked = int(self.asked[now] - self.asked[before])
        return 100 * int(self.hits[now] - self.hits[before]) / asked if asked else None
