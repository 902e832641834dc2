"""What is said of two runs side by side, as HTML; every text in it is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import isfinite, isnan
from typing import Any, Protocol

from .align import Offset
from .compare import Comparison, GaugeDifference, MetricDifference
from .decisions import Split
from .report_tables import folded, notes_list, section, table
from .step_cost import StepCost
from .summary_text import change, number, percent, signed

FIRST = (
    "throughput", "steps", "makespan", "running.mean", "forward_width.mean", "waiting.mean", "preemptions",
    "ttft.mean", "ttft.p50", "ttft.p90", "ttft.p99", "tpot.mean", "tpot.p50", "tpot.p90", "tpot.p99",
    "e2e.mean", "e2e.p50", "e2e.p90", "e2e.p99",
)
"""The metrics that stand open; the others unfold."""
MILLISECONDS = ("ttft", "tpot", "itl", "e2e", "queue")
KINDS = {"all": "all steps", "decode": "decode rows only", "prefill": "any prefill"}
FOUND = {
    "given": "as given", "arrivals": "by the arrivals of the same requests", "clock": "both start with the run",
    "correlation": "by cross-correlation of the running gauges; --offset overrides it",
}
"""How the clock of b was moved."""
UNITS = {"makespan": "s", "throughput": "tok/s", "total_throughput": "tok/s"} | dict.fromkeys(MILLISECONDS, "ms")


class ModelError(Protocol):
    """How far a latency model is off the steps of one kind: relative errors, `bias` that of the seconds summed."""

    @property
    def name(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def median(self) -> float: ...
    @property
    def p90(self) -> float: ...
    @property
    def bias(self) -> float: ...


ModelErrors = Mapping[str, Sequence[ModelError]]
"""Of the latency model of either side (a, b), where it is simulated, on the other's steps."""


def findings(comparison: Comparison, paths: tuple[str, str], model_errors: ModelErrors) -> str:
    """Whose runs these are, why they differ, where they part, and by how much."""
    told = [metric for metric in comparison.metrics if not (isnan(metric.a) and isnan(metric.b))]
    first = [metric for name in FIRST for metric in told if metric.name == name]
    rest = [metric for metric in told if metric.name not in FIRST]
    return (
        _sides(comparison, paths) + "".join(f"<p>{escape(sentence)}</p>" for sentence in comparison.why)
        + notes_list(comparison.reasons)
        + section("What it comes to", _metrics(first) + folded("all other numbers", _metrics(rest)))
        + _costs([cost for cost in comparison.costs if isfinite(cost.relative)])
        + "".join(_errors(side, errors) for side, errors in model_errors.items() if errors)
        + section("On one time axis", _gauges(comparison.gauges) + _clock(comparison.offset))
        + _split(comparison) + _settings(comparison.settings)
    )


def _sides(comparison: Comparison, paths: tuple[str, str]) -> str:
    rows = zip("ab", paths, comparison.arms, comparison.outcomes, strict=True)
    return table(("", "run", "arm", "outcome"), _rows(rows), "sides")


def _metrics(metrics: Iterable[MetricDifference]) -> str:
    rows = [(_label(m.name), *_pair(m), change(m.relative)) for m in metrics]
    return table(("", "a", "b", "b against a"), _rows(rows), "numbers")


def _label(name: str) -> str:
    kind, _, part = name.partition(".")
    unit = f", {UNITS[kind]}" if kind in UNITS else ""
    named = kind.upper() if kind in MILLISECONDS[:4] else kind.replace("_", " ")
    return f"{named} {part}".rstrip() + unit


def _pair(metric: MetricDifference) -> tuple[str, str]:
    factor = 1e3 if metric.name.partition(".")[0] in MILLISECONDS else 1
    return number(factor * metric.a), number(factor * metric.b)


def _gauges(gauges: Sequence[GaugeDifference]) -> str:
    if not gauges:
        return '<p class="hint">There is no gauge that both runs tell.</p>'
    rows = [
        (g.name.replace("_", " "), number(g.a), number(g.b), signed(g.difference), number(g.mean_absolute))
        for g in gauges
    ]
    return table(("", "mean of a", "mean of b", "difference", "mean absolute difference"), _rows(rows), "numbers")


def _costs(costs: Sequence[StepCost]) -> str:
    if not costs:
        return ""
    rows = [
        (KINDS[cost.name], f"{cost.steps[0]:,}", f"{cost.steps[1]:,}", number(1e3 * cost.a), number(1e3 * cost.b),
         change(cost.relative), percent(cost.covered))
        for cost in costs
    ]
    head = ("", "steps of a", "steps of b", "ms in a", "ms in b", "b against a", "of a's time")
    hint = '<p class="hint">Steps of a, at the mean cost that steps of their kind have in either run.</p>'
    return section("What alike steps cost", hint + table(head, _rows(rows), "numbers"))


def _errors(side: str, errors: Iterable[ModelError]) -> str:
    rows = [
        (each.name, f"{each.steps:,}", percent(each.median), percent(each.p90), change(each.bias)) for each in errors
    ]
    body = table(("", "steps", "median error", "p90 error", "error of the sum"), _rows(rows), "numbers")
    return section(f"The latency model of {side} on the steps that the other side ran", body)


def _clock(offset: Offset) -> str:
    return f'<p class="hint">Clock of b: {offset.seconds:+.3f} s ({escape(FOUND[offset.found])}).</p>'


def _settings(settings: Mapping[str, tuple[Any, Any]]) -> str:
    if not settings:
        return ""
    rows = [(name, *map(str, pair)) for name, pair in settings.items()]
    return section("Settings that differ", table(("", "a", "b"), _rows(rows), "settings"))


def _split(comparison: Comparison) -> str:
    split = comparison.split
    if split is None or not comparison.step_level:
        return ""
    columns = [(name, *map(_value, pair)) for name, pair in split.columns.items()]
    differing = table(("column", "a", "b"), _rows(columns), "numbers")
    return section(f"The first step that differs: {split.step:,}", differing + _around(split))


def _around(split: Split) -> str:
    pairs = [pair for pair in split.before_and_after if pair != (None, None)]
    names = next((list(row) for pair in pairs for row in pair if row is not None), [])
    rows = [_step(side, row, names) for pair in pairs for side, row in zip("ab", pair, strict=True)]
    return folded("the steps around it", table(("", *names), _rows(rows), "numbers"))


def _step(side: str, row: Mapping[str, int] | None, names: Sequence[str]) -> list[str]:
    return [side, "ended", *[""] * (len(names) - 1)] if row is None else [side, *(f"{row[name]:,}" for name in names)]


def _value(value: Any) -> str:
    return "no such step" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _rows(rows: Iterable[Iterable[str]]) -> str:
    return "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
