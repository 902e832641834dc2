"""What an imported run does not tell: columns that its tables hold as 0, and numbers made of them."""

from collections.abc import Collection

from .run import Run
from .schema import STEP_COLUMNS

KEY = "known_step_columns"
"""Of run.json: the step columns that an imported log told. Runs without the key know all, where they have steps."""

MADE_OF = {
    "steps": "step", "running": "running", "forward_width": "forward_width", "waiting": "waiting",
    "empty_steps": "forward_width", "busy": "forward_width", "preemptions": "preempted",
    "generated_tokens": "sampled_tokens", "throughput": "sampled_tokens", "total_throughput": "sampled_tokens",
    "wasted_tokens": "wasted_tokens", "prefill_tokens": "prefill_tokens",
    "recomputed_tokens": "recomputed_tokens", "reprefill_tokens": "reprefill_tokens", "cached_tokens": "cached_tokens",
    "cached_share": "cached_tokens", "prefix_hit_share": "prefix_queries", "padded_share": "padded_tokens",
    "kv_peak": "kv_used", "kv_total": "kv_total", "kv_peak_share": "kv_used", "host_seconds": "host_seconds",
    "device_seconds": "device_seconds",
}
"""A field of a summary -> the step column without which it says nothing."""

BY_REQUESTS = frozenset({"throughput", "total_throughput", "generated_tokens"})
"""Fields that the requests tell where there are no steps."""


def known_columns(run: Run) -> Collection[str]:
    """The step columns that a run tells."""
    if not run.steps.num_rows:
        return ()
    told = run.meta.get(KEY)
    return {*told, "step"} if told is not None else {column.name for column in STEP_COLUMNS}


def knows(run: Run, field: str) -> bool:
    """Whether a field of the run's summary says anything."""
    if field == "request_rate":
        return bool(run.requests.num_rows)
    if field == "makespan" or (field in BY_REQUESTS and not run.steps.num_rows):
        return bool(run.steps.num_rows or run.requests.num_rows)
    return field not in MADE_OF or MADE_OF[field] in known_columns(run)


def untold(run: Run) -> frozenset[str]:
    """The fields of the run's summary that say nothing."""
    return frozenset(field for field in (*MADE_OF, "makespan", "request_rate") if not knows(run, field))
