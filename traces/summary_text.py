"""A summary in words and rounded numbers, for tables that people read."""

import math
from collections.abc import Collection

import numpy as np

from .metrics import Summary
from .spread import Gauge, Spread

DASH = "–"


def summary_rows(summary: Summary, untold: Collection[str] = ()) -> list[tuple[str, str]]:
    """Label and text of each line. The labels are the same for every summary. `untold`: fields of the summary about
    which the run says nothing."""
    return [(label, DASH if field in untold else text) for field, label, text in _rows(summary)]


def _rows(summary: Summary) -> list[tuple[str, str, str]]:
    """Field, label and text."""
    statuses = ", ".join(f"{count:,} {status}" for status, count in summary.requests.items())
    empty = f" ({summary.empty_steps:,} empty)" if summary.empty_steps else ""
    return [
        ("outcome", "outcome", summary.outcome), ("requests", "requests", statuses or DASH),
        ("steps", "steps", f"{summary.steps:,}{empty}"),
        ("makespan", "makespan", with_unit(summary.makespan, "s")),
        ("running", "running (the engine's gauge): mean · by time · max", gauge(summary.running)),
        ("forward_width", "forward width: mean · by time · max", gauge(summary.forward_width)),
        ("waiting", "waiting (the engine's gauge): mean · by time · max", gauge(summary.waiting)),
        ("throughput", "throughput, generated", with_unit(summary.throughput, "tok/s")),
        ("total_throughput", "throughput, with prompts", with_unit(summary.total_throughput, "tok/s")),
        ("request_rate", "requests finished", with_unit(summary.request_rate, "/s")),
        *((label, f"{label} p50 · p90 · p99", spread_ms(spread)) for label, spread in latencies(summary)),
        ("preemptions", "preemptions", f"{summary.preemptions:,}"),
        ("prefill_tokens", "prefilled tokens", f"{summary.prefill_tokens:,}"),
        ("recomputed_tokens", "recomputed tokens", f"{summary.recomputed_tokens:,}"),
        ("reprefill_tokens", "re-prefilled tokens", f"{summary.reprefill_tokens:,}"),
        ("cached_tokens", "tokens from the prefix cache", counted_share(summary.cached_tokens, summary.cached_share)),
        ("padded_share", "padding in prefill", percent(summary.padded_share)),
        ("kv_peak", "KV peak", f"{counted_share(summary.kv_peak, summary.kv_peak_share)} of {summary.kv_total:,}"),
    ]


def latencies(summary: Summary) -> tuple[tuple[str, Spread], ...]:
    return (
        ("TTFT", summary.ttft), ("TPOT", summary.tpot), ("ITL", summary.itl), ("E2E", summary.e2e),
        ("queueing", summary.queue),
    )


def number(value: float) -> str:
    """About four digits, without an exponent; a dash where there is no number."""
    if not math.isfinite(value):
        return DASH
    if abs(value) >= 999.95:
        return f"{value:,.0f}"
    return np.format_float_positional(value, precision=4, fractional=False, trim="-")


def signed(value: float) -> str:
    return number(value) if value < 0 else f"+{number(value)}"


def change(relative: float) -> str:
    """A relative difference in percent, to a hundredth."""
    return f"{signed(round(100 * relative, 2) + 0.0)} %" if math.isfinite(relative) else DASH


def with_unit(value: float, unit: str) -> str:
    return f"{number(value)} {unit}" if math.isfinite(value) else DASH


def gauge(value: Gauge) -> str:
    return " · ".join(number(part) for part in (value.mean, value.time_mean, value.max))


def spread_ms(spread: Spread) -> str:
    """Percentiles in milliseconds."""
    if not spread.count:
        return DASH
    return " · ".join(number(1e3 * part) for part in (spread.p50, spread.p90, spread.p99)) + " ms"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %" if math.isfinite(value) else DASH


def counted_share(count: int, part: float) -> str:
    return f"{count:,} ({percent(part)})" if math.isfinite(part) else f"{count:,}"
