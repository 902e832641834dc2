"""What a run comes to: its summary."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .plain import plain
from .quantities import (
    REQUEST_QUANTITIES,
    generated,
    makespan,
    request_rate,
    requests_by_status,
    throughput,
    total,
    utilisation,
)
from .run import Run
from .spread import NAN, Gauge, Spread, share


@dataclass(frozen=True, slots=True)
class Summary:
    """Times in seconds, rates per second of the makespan, shares from 0 to 1. NaN where there is nothing to measure.

    `makespan`: first arrival to the end of the last step; `busy`: the share of it in which a step ran.
    `throughput`: generated tokens, wasted ones excluded;
    `total_throughput` adds the prompts of the requests that got a token. `request_rate`: finished requests.
    `empty_steps`: scheduling passes that ran nothing; they count in the gauges.
    `running` and `waiting` are the engine's own gauges, `forward_width` is what really went into the forward passes.
    `prefix_hit_share`: hits over look-ups in the engine's own unit; `cached_share`: prompt tokens that the cache
    saved, of those it saved and those that were computed. `padded_share`: padding in what a padding engine computed.
    `kv_peak` in KV units (blocks) after scheduling.
    """

    arm: str
    outcome: str
    requests: dict[str, int]
    steps: int
    empty_steps: int
    makespan: float
    busy: float
    running: Gauge
    forward_width: Gauge
    waiting: Gauge
    throughput: float
    total_throughput: float
    request_rate: float
    ttft: Spread
    tpot: Spread
    itl: Spread
    e2e: Spread
    queue: Spread
    preemptions: int
    generated_tokens: int
    wasted_tokens: int
    prefill_tokens: int
    recomputed_tokens: int
    reprefill_tokens: int
    cached_tokens: int
    cached_share: float
    prefix_hit_share: float
    padded_share: float
    kv_peak: int
    kv_total: int
    kv_peak_share: float
    host_seconds: float
    device_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data: NaN becomes None."""
        return dict(plain(self))


def summarise(run: Run) -> Summary:
    """The summary of a run, from its two tables alone."""
    return Summary(
        arm=run.arm, outcome=run.outcome, requests=requests_by_status(run),
        steps=run.steps.num_rows, empty_steps=int((run.column("forward_width") == 0).sum()), makespan=makespan(run),
        busy=utilisation(run), **_gauges(run), **_rates(run), **_latencies(run), **_tokens(run), **_kv(run),
        host_seconds=float(run.column("host_seconds").sum()), device_seconds=float(run.column("device_seconds").sum()),
    )


def _gauges(run: Run) -> dict[str, Any]:
    seconds = run.step_seconds()
    return {name: Gauge.of(run.column(name), seconds) for name in ("running", "forward_width", "waiting")}


def _rates(run: Run) -> dict[str, Any]:
    served = ~np.isnan(run.request_column("first_token"))
    prompts = int(run.request_column("prompt_tokens")[served].sum())
    return {
        "throughput": throughput(run), "request_rate": request_rate(run),
        "total_throughput": share(prompts + generated(run), makespan(run)),
    }


def _latencies(run: Run) -> dict[str, Any]:
    return {name: Spread.of(measure(run)) for name, measure in REQUEST_QUANTITIES.items()}


def _tokens(run: Run) -> dict[str, Any]:
    prefill, padded, cached = (total(run, name) for name in ("prefill_tokens", "padded_tokens", "cached_tokens"))
    return {
        "preemptions": total(run, "preempted"), "generated_tokens": generated(run),
        "wasted_tokens": total(run, "wasted_tokens"), "prefill_tokens": prefill,
        "recomputed_tokens": total(run, "recomputed_tokens"), "reprefill_tokens": total(run, "reprefill_tokens"),
        "cached_tokens": cached, "cached_share": share(cached, cached + prefill),
        "prefix_hit_share": share(total(run, "prefix_hits"), total(run, "prefix_queries")),
        "padded_share": share(padded - prefill, padded),
    }


def _kv(run: Run) -> dict[str, Any]:
    used, units = run.column("kv_used"), run.column("kv_total")
    if not len(used):
        return {"kv_peak": 0, "kv_total": 0, "kv_peak_share": NAN}
    peak, usable = int(used.max()), int(units.max())
    return {"kv_peak": peak, "kv_total": usable, "kv_peak_share": share(peak, usable)}
