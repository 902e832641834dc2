"""What a difference between two runs is made of, in sentences."""

from collections.abc import Container, Iterator
from math import isfinite, isnan

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
    summaries: tuple[Summary, Summary], identical: bool, same_times: bool, time: TimeSplit, untold: Container[str] = (),
) -> Iterator[str]:
    """None where the two runs are the same. `untold`: fields of the summaries about which either run says nothing."""
    if not identical:
        yield from _sources(*summaries, untold)
    if not (identical and same_times):
        yield _where(time)


def _sources(a: Summary, b: Summary, untold: Container[str]) -> Iterator[str]:
    for name, words in SOURCES:
        if name.partition(".")[0] in untold:
            continue
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
