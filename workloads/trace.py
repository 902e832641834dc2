"""A trace file becomes a workload: window, limit, rate, lengths."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from .arrivals import ClosedLoop
from .closed_loop import ClosedLoopWorkload
from .config import TraceConfig
from .error import WorkloadError
from .files import find
from .format import Reading
from .formats import choose_format
from .limits import max_tokens_of, priorities_of
from .pieces import Prompt, content, cut, scale_up, scaled
from .requests import Columns, OpenLoop, cap_note, make_requests
from .rows import Floats, Rows
from .streams import stream

DAY = 86_400.0
"""Seconds. A first arrival as late as that is taken for a clock, not for a wait."""


def load_trace(config: TraceConfig, base: Path | None = None) -> OpenLoop | ClosedLoopWorkload:
    """Read the file (a relative path: from `base`, then from the current folder) and apply the options.

    Raises WorkloadError with file, line and reason; OSError passes through.
    """
    path = find(config.path, base)
    rows = read_rows(path, config)
    columns = _columns(rows, config)
    notes = (*rows.notes, *cap_note(columns))
    requests = make_requests(columns)
    if isinstance(config.arrivals, ClosedLoop):
        loop = config.arrivals
        return ClosedLoopWorkload(path.name, requests, loop.closed_loop, loop.think_time, notes)
    return OpenLoop(path.name, requests, notes)


def read_rows(path: Path, config: TraceConfig) -> Rows:
    """The requests that are left, in order of arrival, their times final and their lengths as in the file."""
    format = choose_format(path, config.format)
    rows = format.read(path, Reading(config.seed, config.window, config.limit))
    rows = replace(rows, notes=(f"format {format.name}, {len(rows)} rows", *rows.notes))
    rows = _limited(_windowed(_in_order(_servable(rows, config), path), config, path), config)
    if config.arrivals is not None:
        times = config.arrivals.times(len(rows), stream(config.seed, "arrivals"))
        return replace(rows, times=np.array(times)).noted("arrival times replaced")
    return _rated(_rebased(rows, config), config, path)


def _servable(rows: Rows, config: TraceConfig) -> Rows:
    """Without prompt or output there is nothing to serve."""
    empty, silent = rows.prompts == 0, rows.outputs == 0
    if silent.any() and config.zero_output == "one":
        rows = replace(rows, outputs=np.maximum(rows.outputs, 1))
        rows = rows.noted(f"{silent.sum()} rows without output tokens generate one")
    elif silent.any():
        rows = rows.noted(f"{silent.sum()} rows without output tokens dropped")
    if empty.any():
        rows = rows.noted(f"{empty.sum()} rows without prompt tokens dropped")
    keep = (rows.prompts > 0) & (rows.outputs > 0)
    return rows if keep.all() else rows.where(keep)


def _in_order(rows: Rows, path: Path) -> Rows:
    if not len(rows):
        raise WorkloadError(f"{path}: no request is left to serve ({'; '.join(rows.notes)})")
    if rows.times is None:
        return replace(rows.noted("no arrival times: all at once"), times=np.zeros(len(rows)))
    behind = int(np.count_nonzero(np.diff(rows.times) < 0))
    if not behind:
        return rows
    return rows.take(np.argsort(rows.times, kind="stable")).noted(f"{behind} times went back: sorted by time")


def _windowed(rows: Rows, config: TraceConfig, path: Path) -> Rows:
    if config.window is None:
        return rows
    start, end = config.window
    times = _times(rows)
    kept = rows.where((times >= start) & (times < end))
    if not len(kept):
        raise WorkloadError(f"{path}: no request in window [{start:g}, {end:g}): "
                            f"they arrive from {times[0]:.3f} to {times[-1]:.3f} s")
    return replace(kept, times=_times(kept) - start).noted(f"window [{start:g}, {end:g}) s: {len(kept)} requests")


def _limited(rows: Rows, config: TraceConfig) -> Rows:
    if config.limit is None or config.limit >= len(rows):
        return rows
    return rows.take(np.arange(config.limit)).noted(f"limit: the first {config.limit} of {len(rows)}")


def _rebased(rows: Rows, config: TraceConfig) -> Rows:
    """The first request becomes 0 where the clock is not the trace's own; a window has set its own start."""
    first = float(_times(rows)[0])
    if config.window is not None or first == 0 or not (rows.dated or first < 0 or first >= DAY):
        return rows
    return replace(rows, times=_times(rows) - first).noted(f"the clock starts at {first:.3f} s: rebased to 0")


def _rated(rows: Rows, config: TraceConfig, path: Path) -> Rows:
    if config.rate is None:
        return rows
    times = _times(rows)
    factor = float(config.rate[1:]) if isinstance(config.rate, str) else _speed(times, config.rate, path)
    return replace(rows, times=times / factor).noted(f"rate {config.rate}: times divided by {factor:g}")


def _speed(times: Floats, rate: float, path: Path) -> float:
    """How much faster the clock must run for `rate` requests per second, counted as requests over the span."""
    span = times[-1] - times[0]
    if span <= 0:
        raise WorkloadError(f"{path}: all requests arrive at once, so there is no rate to change to {rate:g}: "
                            "leave out 'rate', or give 'arrivals'")
    return float(rate * span / len(times))


def _times(rows: Rows) -> Floats:
    assert rows.times is not None
    return rows.times


def _columns(rows: Rows, config: TraceConfig) -> Columns:
    outputs = [scale_up(output, config.scale_output) for output in rows.outputs.tolist()]
    max_tokens = max_tokens_of(config.max_tokens, outputs)
    if config.max_tokens is None and rows.max_tokens is not None:
        max_tokens = [scale_up(most, config.scale_output) for most in rows.max_tokens.tolist()]
    if config.priority is None and rows.priorities is not None:
        priorities = rows.priorities.tolist()
    else:
        priorities = priorities_of(config.priority or (0,), len(rows))
    return Columns(_times(rows).tolist(), _prompts(rows, config), outputs, max_tokens, priorities, rows.ids)


def _prompts(rows: Rows, config: TraceConfig) -> list[Prompt]:
    prompts = rows.content or [content(f"r{index}", tokens) for index, tokens in enumerate(rows.prompts.tolist())]
    if config.scale_prompt != 1:
        prompts = [scaled(prompt, config.scale_prompt) for prompt in prompts]
    if config.max_prompt is not None:
        prompts = [cut(prompt, config.max_prompt) for prompt in prompts]
    return prompts
