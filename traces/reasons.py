"""Why two runs differ, in sentences."""

from collections.abc import Iterator
from math import isfinite, isnan

from .decisions import Split
from .metrics import Summary
from .summary_text import number, signed
from .time_split import TimeSplit

SOURCES = (
    ("steps", "steps"), ("forward_width.mean", "sequences in a forward, mean over steps"),
    ("preemptions", "preemptions"), ("prefill_tokens", "prefilled tokens"),
    ("recomputed_tokens", "tokens computed again"), ("cached_tokens", "tokens from the prefix cache"),
)
"""What a difference in time can come from, as named in `Summary`."""


def reasons(
    summaries: tuple[Summary, Summary], split: Split | None, same_requests: bool, same_times: bool, time: TimeSplit,
) -> Iterator[str]:
    """Sentences, the weightiest first."""
    if not same_requests:
        yield "The two runs did not serve the same requests (names and prompt lengths differ)."
    if split is None:
        yield from _alike(summaries[0].steps, same_times, time)
    else:
        yield _parting(split)
        yield from _sources(*summaries)
        yield _where(time)


def _alike(steps: int, same_times: bool, time: TimeSplit) -> Iterator[str]:
    if same_times:
        yield f"All {steps:,} steps agree, in decisions and in times."
    else:
        yield f"All {steps:,} scheduling decisions agree; only the times of the steps differ."
        yield _where(time)


def _parting(split: Split) -> str:
    if None in split.columns.get("step", ()):
        ended, other = ("a", "b") if split.columns["step"][0] is None else ("b", "a")
        return f"The decisions agree until {ended} ends after {split.step:,} steps; {other} goes on."
    named = ", ".join(f"{name} {a} and {b}" for name, (a, b) in list(split.columns.items())[:4])
    return f"The decisions part at step {split.step:,}: {named}."


def _sources(a: Summary, b: Summary) -> Iterator[str]:
    for name, words in SOURCES:
        left, right = _pick(a, name), _pick(b, name)
        if left != right and not (isnan(left) and isnan(right)):
            change = f" ({right / left - 1:+.1%})" if left and isfinite(left) and isfinite(right) else ""
            yield f"{words[0].upper()}{words[1:]}: {number(left)} and {number(right)}{change}."


def _pick(summary: Summary, name: str) -> float:
    field, _, part = name.partition(".")
    value = getattr(summary, field)
    return float(getattr(value, part) if part else value)


def _where(time: TimeSplit) -> str:
    return (
        f"b takes {signed(time.total)} s: {signed(time.steps)} s from the number of steps, {signed(time.step_cost)} s "
        f"from what a step costs, {signed(time.idle)} s from idle time."
    )
