"""A run from rows of plain values, for small runs and for imports."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .arrow import table
from .run import Run
from .schema import REQUEST_COLUMNS, STEP_COLUMNS, Column

_BLANK: Mapping[str, Any] = {"int": 0, "float": 0.0, "text": "", "ints": (), "floats": ()}
_NEVER = ("first_scheduled", "first_token", "finish")


def run_from_rows(
    steps: Iterable[Mapping[str, Any]] = (), requests: Iterable[Mapping[str, Any]] = (),
    meta: Mapping[str, Any] | None = None,
) -> Run:
    """A run from one mapping a row. A column left out is 0, empty, or NaN for a time that never came.

    Further defaults of a step: `step` counts from 0, `forward_widths` is `[forward_width]`. Of a request:
    `id` is its place, `status` is "finished". Raises ValueError on an unknown column.
    """
    step_rows = [_step(row, number) for number, row in enumerate(steps)]
    request_rows = [_request(row, number) for number, row in enumerate(requests)]
    return Run(_table(STEP_COLUMNS, step_rows), _table(REQUEST_COLUMNS, request_rows), dict(meta or {}))


def _step(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    width = row.get("forward_width", 0)
    return {"step": number, "forward_widths": [width] if width else [], **row}


def _request(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {"id": str(number), "status": "finished", **dict.fromkeys(_NEVER, float("nan")), **row}


def _table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> Any:
    known = {column.name for column in columns}
    unknown = sorted({name for row in rows for name in row} - known)
    if unknown:
        raise ValueError(f"no such column: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return table(columns, {c.name: [row.get(c.name, _BLANK[c.kind]) for row in rows] for c in columns})
