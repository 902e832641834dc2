"""The requests that were served worst, and what a page shows of each."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrow import flat, sizes
from .run import Run
from .story import Stories, Story

Numbers = NDArray[np.float64]
SHOWN = (
    "id", "arrival", "prompt_tokens", "output_tokens", "cached_tokens", "recomputed_tokens", "preemptions", "status",
    "reason",
)
"""What a page shows of a request as it stands in the table."""
TICKS = 64
PARTS = 200
"""How many tokens and parts of one story are drawn at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """How each request was served, a value a request: seconds (NaN where it has none), and a count."""

    queue: Numbers
    ttft: Numbers
    tpot: Numbers
    e2e: Numbers
    gap: Numbers
    preemptions: Numbers

    @classmethod
    def of(cls, run: Run) -> "Served":
        """`gap`: the longest time between two tokens."""
        arrival, first, finish = (run.request_column(name) for name in ("arrival", "first_token", "finish"))
        tokens = run.request_column("output_tokens").astype(np.float64)
        after_first = np.where(tokens > 1, tokens - 1, np.nan)
        return cls(
            queue=run.request_column("first_scheduled") - arrival, ttft=first - arrival,
            tpot=(finish - first) / after_first, e2e=finish - arrival, gap=_longest_gaps(run),
            preemptions=run.request_column("preemptions").astype(np.float64),
        )


def _longest_gaps(run: Run) -> Numbers:
    column = run.requests.column("token_times")
    counts, longest = sizes(column), np.full(run.requests.num_rows, np.nan)
    gaps = np.diff(flat(column), prepend=0.0)
    starts, several = np.cumsum(counts) - counts, counts > 1
    gaps[starts[counts > 0]] = 0.0  # from one request to the next; so what has one token adds nothing to another
    if several.any():
        longest[several] = np.maximum.reduceat(gaps, starts[several])
    return longest


def worst_ids(run: Run, count: int) -> set[str]:
    """The names of the requests in `worst_rows`."""
    return {run.requests.column("id")[row].as_py() for row in worst_rows(run, Served.of(run), count)}


def worst_rows(run: Run, served: Served, count: int) -> list[int]:
    """Rows of the request table: the `count` largest of each number of `Served`, and as many that did not finish."""
    rows: set[int] = set()
    for name in ("ttft", "tpot", "e2e", "gap", "preemptions"):
        values = getattr(served, name)
        order = np.argsort(-values, kind="stable")[:count]  # NaN comes last
        rows.update(int(row) for row in order if values[row] > 0)
    left = np.flatnonzero(np.isnan(run.request_column("finish")))[:count]
    return sorted(rows | set(left.tolist()))


def described(run: Run, count: int, also: Collection[str] = ()) -> list[dict[str, Any]]:
    """What a page shows of the worst requests of a run, and of those named in `also`.

    Each has the columns of the request table that tell of it, its latencies in ms (absent where there is none), and its
    story: `parts` as [kind, start, end], `chunks` and `ticks` (tokens, thinned), in seconds of the run.
    """
    served, stories = Served.of(run), Stories(run)
    rows = set(worst_rows(run, served, count))
    if also:
        rows.update(row for row, id in enumerate(run.requests.column("id").to_pylist()) if id in also)
    return [_described(run, served, stories.of(row), row) for row in sorted(rows)]


def _described(run: Run, served: Served, story: Story, row: int) -> dict[str, Any]:
    facts = {name: run.requests.column(name)[row].as_py() for name in SHOWN}
    times = {name: 1e3 * float(getattr(served, name)[row]) for name in ("queue", "ttft", "tpot", "e2e", "gap")}
    return {
        **facts, **{name: round(value, 4) for name, value in times.items() if not np.isnan(value)},
        "parts": [[part.kind, round(part.start, 6), round(part.end, 6)] for part in _thinned(story)],
        "chunks": _some(story.chunks, TICKS), "ticks": _some(story.tokens, TICKS),
    }


def _thinned(story: Story) -> list[Any]:
    """The longest parts, where there are too many to draw."""
    if len(story.parts) <= PARTS:
        return list(story.parts)
    longest = sorted(story.parts, key=lambda part: part.start - part.end)[:PARTS]
    return sorted(longest, key=lambda part: part.start)


def _some(times: Numbers, most: int) -> list[float]:
    every = max(1, -(-len(times) // most))
    return [round(time, 6) for time in times[::every].tolist()]
