"""A run as trace events, the format that Perfetto and chrome://tracing read.

Format: "Trace Event Format" of the Chromium project. Times and durations are in microseconds.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .curve import Curve
from .gauge_curve import PERCENT, GaugeCurve
from .lanes import Lanes
from .run import Run
from .story import QUEUED, Part, Stories

ENGINE, SEQUENCES, QUEUE = 1, 2, 3
PROCESSES = {ENGINE: "engine", SEQUENCES: "sequences", QUEUE: "queue"}
COUNTERS = {"running": "running", "waiting": "waiting", "forward_width": "forward width", "kv_used": "KV units in use"}
STEP_ARGS = (
    "running", "waiting", "forward_width", "prefill_tokens", "decode_tokens", "cached_tokens", "recomputed_tokens",
    "admitted", "resumed", "preempted", "finished",
)
REQUEST_ARGS = ("prompt_tokens", "output_tokens", "cached_tokens", "recomputed_tokens", "preemptions", "status")
_BLOCK = 1 << 14


def events(run: Run) -> Iterator[str]:
    """Every event as one JSON object: the steps and the gauges of the engine, each sequence on a slot of its own from
    its first step to its end, and before that in the queue. They are made one after another and need no memory
    beyond the run's."""
    for place, name in PROCESSES.items():
        yield _meta("process_name", place, 0, {"name": name})
        yield _meta("process_sort_index", place, 0, {"sort_index": place})
    yield from _steps(run)
    for column, name in COUNTERS.items():
        gauge = GaugeCurve.of(run, column)
        yield from _counter(gauge.curve, "KV in use, %" if gauge.sampled and column == PERCENT else name)
    stories = Stories(run)
    yield from _sequences(run, stories)
    yield from _queue(run, stories)


def _steps(run: Run) -> Iterator[str]:
    """Steps that overlap (an asynchronous engine's) lie on tracks of their own."""
    tracks = _Tracks(ENGINE, "steps")
    columns = {name: run.column(name) for name in ("t_start", "t_end", "step", *STEP_ARGS)}
    for block in range(0, run.steps.num_rows, _BLOCK):
        values = [column[block:block + _BLOCK].tolist() for column in columns.values()]
        for start, end, step, *counts in zip(*values, strict=True):
            args = {"step": step} | {name: count for name, count in zip(STEP_ARGS, counts, strict=True) if count}
            part = Part(_kind(args), start, end)
            yield from tracks.place(part)
            yield _slice(ENGINE, tracks.lane, part, args)
            if "preempted" in args:
                yield _instant(ENGINE, tracks.lane, "preempted", start, {"sequences": args["preempted"]})


def _kind(args: Mapping[str, int]) -> str:
    prefill, decode = "prefill_tokens" in args, "decode_tokens" in args
    return "mixed" if prefill and decode else "prefill" if prefill else "decode" if decode else "empty"


def _counter(curve: Curve, name: str) -> Iterator[str]:
    """Where the gauge changes."""
    changes = np.flatnonzero(np.diff(curve.values, prepend=np.nan))
    times, values = _microseconds(curve.times[changes]), curve.values[changes]
    for block in range(0, len(changes), _BLOCK):
        pair = (of[block:block + _BLOCK].tolist() for of in (times, values))
        for time, value in zip(*pair, strict=True):
            yield f'{{"ph":"C","pid":{ENGINE},"tid":0,"name":"{name}","ts":{time},"args":{{"value":{value:.12g}}}}}'


def _sequences(run: Run, stories: Stories) -> Iterator[str]:
    tracks = _Tracks(SEQUENCES, "slot")
    for row in _by(_begins(run)):
        story = stories.of(row)
        parts = [part for part in story.parts if part.kind != QUEUED]
        if not parts:
            continue
        facts = {name: run.requests.column(name)[row].as_py() for name in REQUEST_ARGS}
        whole = Part(run.requests.column("id")[row].as_py(), parts[0].start, parts[-1].end)
        yield from tracks.place(whole)
        yield _slice(SEQUENCES, tracks.lane, whole, facts)
        for part in parts:
            yield _slice(SEQUENCES, tracks.lane, part, {"request": whole.kind})


def _begins(run: Run) -> NDArray[np.float64]:
    """When each request takes its slot: when it first runs, or arrives, where the run does not say that."""
    first, token, arrival = (run.request_column(name) for name in ("first_scheduled", "first_token", "arrival"))
    return np.where(np.isnan(first) & ~np.isnan(token), arrival, first)


def _queue(run: Run, stories: Stories) -> Iterator[str]:
    tracks = _Tracks(QUEUE, "place")
    for row in _by(run.request_column("arrival")):
        parts = stories.of(row).parts
        id = run.requests.column("id")[row].as_py()
        if parts and parts[0].kind == QUEUED:
            yield from tracks.place(parts[0])
            yield _slice(QUEUE, tracks.lane, Part("queue", parts[0].start, parts[0].end), {"request": id})
        elif not parts:
            status, reason = (run.requests.column(name)[row].as_py() for name in ("status", "reason"))
            arrival = run.requests.column("arrival")[row].as_py()
            yield _instant(QUEUE, 0, status, arrival, {"request": id, "reason": reason})


def _by(times: NDArray[np.float64]) -> list[int]:
    """The rows that have a time, in its order."""
    order = np.argsort(times, kind="stable")
    found: list[int] = order[~np.isnan(times[order])].tolist()
    return found


class _Tracks:
    """The tracks of one process, named when they are first used."""

    def __init__(self, process: int, name: str) -> None:
        self.lane = 0
        self._process, self._name = process, name
        self._lanes = Lanes()

    def place(self, part: Part) -> Iterator[str]:
        """Choose `lane` (from 1) for it."""
        known = self._lanes.count
        lane = self._lanes.take(part.start, part.end)
        self.lane = lane + 1
        if self._lanes.count > known:
            yield _meta("thread_name", self._process, self.lane, {"name": f"{self._name} {lane}"})
            yield _meta("thread_sort_index", self._process, self.lane, {"sort_index": lane})


def _slice(process: int, lane: int, part: Part, args: Mapping[str, Any]) -> str:
    start, end = _microseconds(part.start), _microseconds(part.end)
    return (
        f'{{"ph":"X","pid":{process},"tid":{lane},"name":{json.dumps(part.kind)},"ts":{start},'
        f'"dur":{round(end - start, 3)},"args":{json.dumps(args)}}}'
    )


def _instant(process: int, lane: int, name: str, time: float, args: Mapping[str, Any]) -> str:
    return (
        f'{{"ph":"i","s":"t","pid":{process},"tid":{lane},"name":{json.dumps(name)},"ts":{_microseconds(time)},'
        f'"args":{json.dumps(args)}}}'
    )


def _meta(name: str, process: int, lane: int, args: Mapping[str, Any]) -> str:
    return f'{{"ph":"M","pid":{process},"tid":{lane},"name":"{name}","args":{json.dumps(args)}}}'


def _microseconds(seconds: Any) -> Any:
    """To the nanosecond."""
    return np.round(seconds * 1e6, 3) if isinstance(seconds, np.ndarray) else round(seconds * 1e6, 3)
