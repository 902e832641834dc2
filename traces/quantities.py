"""What can be asked of a run by name: a value per step, a value per request, or one number."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from .arrow import flat, sizes
from .run import Run, UnknownName
from .schema import STEP_COLUMNS
from .spread import share

Values = NDArray[np.float64]


def ttft(run: Run) -> Values:
    """Seconds from arrival to first token, of every request that got one."""
    return _present(run.request_column("first_token") - run.request_column("arrival"))


def queue(run: Run) -> Values:
    """Seconds from arrival to the start of the first step it ran in, of every request that ran."""
    return _present(run.request_column("first_scheduled") - run.request_column("arrival"))


def e2e(run: Run) -> Values:
    """Seconds from arrival to the last token, of every finished request."""
    return _present(run.request_column("finish") - run.request_column("arrival"))


def tpot(run: Run) -> Values:
    """(E2E - TTFT) / (output - 1), of every finished request with two tokens or more, seconds."""
    tokens = run.request_column("output_tokens")
    several = tokens > 1
    after_first = (run.request_column("finish") - run.request_column("first_token"))[several]
    return _present(after_first / (tokens[several] - 1))


def itl(run: Run) -> Values:
    """Every gap between two tokens of a request, seconds."""
    column = run.requests.column("token_times")
    gaps = np.diff(flat(column))
    counts = sizes(column)
    ends = np.cumsum(counts[counts > 0])[:-1] - 1  # gaps that lead from one request to the next
    return np.delete(gaps, ends)


def makespan(run: Run) -> float:
    """Seconds from the first arrival to the end of the last step; without steps, to the last token; 0 of neither."""
    ends, arrivals = run.column("t_end"), run.request_column("arrival")
    if not len(ends):
        ends = _present(run.request_column("finish"))
    if not len(ends):
        return 0.0
    return float(ends.max() - (arrivals.min() if len(arrivals) else run.column("t_start")[0]))


def own_starts(run: Run) -> Values:
    """When each step began to take time of its own: where it was scheduled while the one before it still ran, when that
    had ended. Seconds."""
    ends = np.maximum.accumulate(run.column("t_end"))
    before = np.concatenate([[-np.inf], ends[:-1]])[:len(ends)]
    return np.asarray(np.maximum(run.column("t_start"), before), dtype=np.float64)


def utilisation(run: Run) -> float:
    """The share of the makespan in which a step ran that had anything to run; NaN without steps."""
    ran = run.column("forward_width") > 0
    seconds = np.maximum(run.column("t_end") - own_starts(run), 0.0)[ran]
    return share(float(seconds.sum()), makespan(run)) if len(seconds) else float("nan")


def generated(run: Run) -> int:
    """Tokens generated: in the steps, or, of a run that has none, by the requests."""
    of_steps = run.steps.num_rows > 0
    return total(run, "sampled_tokens") if of_steps else int(run.request_column("output_tokens").sum())


def total(run: Run, column: str) -> int:
    """The sum of a whole-number column over the steps."""
    return int(run.column(column).sum())


def requests_by_status(run: Run) -> dict[str, int]:
    """How many requests ended in which way, the ways that occurred only."""
    counted = run.requests.column("status").value_counts().to_pylist()
    return {entry["values"]: entry["counts"] for entry in sorted(counted, key=lambda entry: str(entry["values"]))}


def throughput(run: Run) -> float:
    """Generated tokens per second of the makespan."""
    return share(generated(run), makespan(run))


def request_rate(run: Run) -> float:
    """Finished requests per second of the makespan."""
    return share(_status("finished")(run), makespan(run))


REQUEST_QUANTITIES: Mapping[str, Callable[[Run], Values]] = {
    "ttft": ttft, "tpot": tpot, "e2e": e2e, "itl": itl, "queue": queue,
}
STEP_QUANTITIES = tuple(c.name for c in STEP_COLUMNS if c.kind in ("int", "float"))


def quantity(run: Run, name: str) -> Values:
    """Many values: a numeric column of the step table, `step_seconds`, or ttft, tpot, e2e, itl, queue (seconds).

    Raises UnknownName, which lists the names there are.
    """
    if name in REQUEST_QUANTITIES:
        return REQUEST_QUANTITIES[name](run)
    if name == "step_seconds":
        return run.step_seconds()
    if name in STEP_QUANTITIES:
        return run.column(name).astype(np.float64)
    raise UnknownName(f"no quantity {name!r}; there are {', '.join(quantity_names())}")


def quantity_names() -> tuple[str, ...]:
    return (*REQUEST_QUANTITIES, "step_seconds", *STEP_QUANTITIES)


def _status(name: str) -> Callable[[Run], float]:
    return lambda run: float(requests_by_status(run).get(name, 0))


def _total(column: str) -> Callable[[Run], float]:
    return lambda run: float(total(run, column))


SCALARS: Mapping[str, Callable[[Run], float]] = {
    "throughput": throughput,
    "request_rate": request_rate,
    "makespan": makespan,
    "steps": lambda run: float(run.steps.num_rows),
    "requests": lambda run: float(run.requests.num_rows),
    "finished": _status("finished"),
    "rejected": _status("rejected"),
    "aborted": _status("aborted"),
    "unfinished": _status("unfinished"),
    "preemptions": _total("preempted"),
    "generated_tokens": lambda run: float(generated(run)),
    "prefill_tokens": _total("prefill_tokens"),
    "recomputed_tokens": _total("recomputed_tokens"),
    "reprefill_tokens": _total("reprefill_tokens"),
    "cached_tokens": _total("cached_tokens"),
    "wasted_tokens": _total("wasted_tokens"),
}


def scalar(run: Run, name: str) -> float:
    """One number of the whole run. Raises UnknownName, which lists the names there are."""
    if name not in SCALARS:
        raise UnknownName(f"no number {name!r} of a run; there are {', '.join(SCALARS)}")
    return SCALARS[name](run)


def _present(values: Values) -> Values:
    return values[~np.isnan(values)]
