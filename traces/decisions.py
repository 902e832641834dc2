"""Do two runs decide alike, and if not, where do they part?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrow import flat, sizes
from .known import known_columns
from .run import Run
from .schema import STEP_COLUMNS, Column

DECISIONS: tuple[Column, ...] = tuple(column for column in STEP_COLUMNS if column.decision)
"""Every scheduling column of the step table; no times."""

CONTEXT_COLUMNS = (
    "step", "running", "waiting", "forward_width", "prefill_tokens", "decode_seqs", "preempted", "kv_used",
)
CONTEXT_ROWS = 3


@dataclass(frozen=True, slots=True)
class Split:
    """The first step that differs: `columns` maps a column to its value in either run (None: that run has ended).

    `before_and_after`: those `CONTEXT_COLUMNS` that both know, of the steps around it in either run, as (row of a, row
    of b); None where a run has no such step.
    """

    step: int
    columns: dict[str, tuple[Any, Any]]
    before_and_after: tuple[tuple[dict[str, int] | None, dict[str, int] | None], ...]


def compared_columns(a: Run, b: Run) -> tuple[Column, ...]:
    """The scheduling columns that both runs know; all of them where one has no steps."""
    known = [known_columns(run) for run in (a, b) if run.steps.num_rows]
    return tuple(column for column in DECISIONS if all(column.name in names for names in known))


def equal_steps(a: Run, b: Run) -> bool:
    """All scheduling columns that both know are equal, step by step. Times do not count."""
    return all(a.steps.column(c.name).equals(b.steps.column(c.name)) for c in compared_columns(a, b))


def first_split(a: Run, b: Run) -> Split | None:
    """Where the two step tables part; None if they decide alike to the end."""
    if equal_steps(a, b):
        return None
    step = min(_first_mismatches(a, b), default=min(a.steps.num_rows, b.steps.num_rows))
    return Split(step, _differing(a, b, step), _around(a, b, step))


def other_arrivals(a: Run, b: Run) -> tuple[int, int, int] | None:
    """Where two runs that had scheduled alike so far come to a step before which other requests had arrived: the step,
    and how many new ones in either. None where they part otherwise, or never.

    Gauges after commit are not looked at: where steps overlap, the next one has been scheduled by then.
    """
    columns = [column for column in compared_columns(a, b) if not column.name.endswith("_end")]
    if not any(column.name == "arrived" for column in columns):
        return None
    step = min(_first_mismatches(a, b, columns), default=None)
    if step is None:
        return None
    left, right = (int(_value(run, "arrived", step)) for run in (a, b))
    return None if left == right else (step, left, right)


def _first_mismatches(a: Run, b: Run, columns: Sequence[Column] | None = None) -> Iterator[int]:
    """Of every column, among the steps that both have."""
    rows = min(a.steps.num_rows, b.steps.num_rows)
    for column in compared_columns(a, b) if columns is None else columns:
        left, right = (run.steps.column(column.name).slice(0, rows) for run in (a, b))
        if not left.equals(right):
            yield _first_mismatch_of_lists(left, right) if column.kind == "ints" else _first(_unlike(left, right))


def _unlike(left: Any, right: Any) -> NDArray[np.bool_]:
    different: NDArray[np.bool_] = left.to_numpy() != right.to_numpy()
    return different


def _first_mismatch_of_lists(left: Any, right: Any) -> int:
    lengths, values = (sizes(left), sizes(right)), (flat(left), flat(right))
    by_length = _first(lengths[0] != lengths[1], none=len(lengths[0]))
    shared = int(lengths[0][:by_length].sum())
    value = _first(values[0][:shared] != values[1][:shared], none=shared)
    return int(np.searchsorted(np.cumsum(lengths[0][:by_length]), value, side="right")) if value < shared else by_length


def _first(unlike: NDArray[np.bool_], none: int = 0) -> int:
    return int(unlike.argmax()) if unlike.any() else none


def _differing(a: Run, b: Run, step: int) -> dict[str, tuple[Any, Any]]:
    pairs = {c.name: (_value(a, c.name, step), _value(b, c.name, step)) for c in compared_columns(a, b)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _around(a: Run, b: Run, step: int) -> tuple[tuple[dict[str, int] | None, dict[str, int] | None], ...]:
    rows = range(max(0, step - CONTEXT_ROWS), min(step + CONTEXT_ROWS + 1, max(a.steps.num_rows, b.steps.num_rows)))
    compared = {column.name for column in compared_columns(a, b)}
    names = [name for name in CONTEXT_COLUMNS if name in compared]
    return tuple((_row(a, row, names), _row(b, row, names)) for row in rows)


def _row(run: Run, step: int, names: list[str]) -> dict[str, int] | None:
    if step >= run.steps.num_rows:
        return None
    return {name: _value(run, name, step) for name in names}


def _value(run: Run, column: str, step: int) -> Any:
    return run.steps.column(column)[step].as_py() if step < run.steps.num_rows else None
