"""The words of statements: the functions, and the columns and quantities that they read."""

from collections.abc import Mapping

from ..traces.quantities import REQUEST_QUANTITIES, SCALARS, STEP_QUANTITIES, quantity_names

REDUCERS = ("mean", "min", "max", "sum", "p50", "p90", "p95", "p99", "std")
"""`function(column, variant)`, over the steps, or over the requests for ttft, tpot, itl, e2e and queue (seconds)."""

TIME_REDUCERS = ("time_mean",)
"""`function(column, variant)`, over the steps, each weighted by how long it took."""

SHORT = {"recomputed": "recomputed_tokens"}
"""Other names of numbers of a run."""

TOTALS = (*SCALARS, *SHORT)
"""`function(variant)`: one number of the whole run."""

PREDICATES: Mapping[str, int] = {"equal_steps": 2, "completed": 1}
"""True or false on their own; the number of variants that each takes."""

FUNCTIONS = (*REDUCERS, *TIME_REDUCERS, *TOTALS, *PREDICATES)
KEYWORDS = frozenset({"where", "and", "in", "within", "not", "or"})
TIMES = frozenset({
    *REQUEST_QUANTITIES, "step_seconds", "t_start", "t_end", "host_seconds", "device_seconds", "makespan",
})
"""Columns and numbers of a run that are seconds."""


def readable(function: str) -> tuple[str, ...]:
    """The columns and quantities that a function of a column can read."""
    return ("step_seconds", *STEP_QUANTITIES) if function in TIME_REDUCERS else quantity_names()


def usage(function: str) -> str:
    """How a function is called: `mean(column, variant)`."""
    if function in PREDICATES:
        return f"{function}({', '.join(['variant', 'other variant'][: PREDICATES[function]])})"
    return f"{function}(variant)" if function in TOTALS else f"{function}(column, variant)"
