"""One run: the step table, the request table, the gauge samples of an imported log, and what made them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrow import arrow_schema, numbers, sizes
from .schema import REQUEST_COLUMNS, SAMPLE_COLUMNS, STEP_COLUMNS

_NUMERIC = tuple(c.name for c in STEP_COLUMNS if c.kind in ("int", "float"))
_REQUEST_NUMERIC = tuple(c.name for c in REQUEST_COLUMNS if c.kind in ("int", "float"))
_SAMPLE_NUMERIC = tuple(c.name for c in SAMPLE_COLUMNS if c.kind in ("count", "float"))
WAITING = ("waiting", "swapped", "outside")
"""The sample columns that add up to everything that waits."""


def no_samples() -> Any:
    """The sample table of a run that has none."""
    return arrow_schema(SAMPLE_COLUMNS).empty_table()


class UnknownName(ValueError):
    """A name that nothing in a run goes by; the message lists the names there are."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """`steps`, `requests`, `samples` are Arrow tables of exactly `STEP_COLUMNS`, `REQUEST_COLUMNS`, `SAMPLE_COLUMNS`.

    `meta` is what run.json holds: the configuration as resolved, seed, arm, policy, versions, machine, outcome, notes.
    Runs of arcsim have no samples. An imported log has them, and steps only where it shows every iteration;
    `meta["known_step_columns"]` names the step columns that it told, and the others are 0.
    Raises ValueError where a table has other columns.
    """

    steps: Any
    requests: Any
    meta: dict[str, Any] = field(default_factory=dict)
    samples: Any = field(default_factory=no_samples)

    def __post_init__(self) -> None:
        tables = (("steps", STEP_COLUMNS), ("requests", REQUEST_COLUMNS), ("samples", SAMPLE_COLUMNS))
        for name, columns in tables:
            found, wanted = getattr(self, name).schema, arrow_schema(columns)
            if not found.equals(wanted):
                raise ValueError(f"the table of {name} does not have the trace's columns: {_odd(found, wanted)}")

    @property
    def arm(self) -> str:
        """`simulated`, `measured`, or what an import says."""
        return str(self.meta.get("arm", "unknown"))

    @property
    def outcome(self) -> str:
        return str(self.meta.get("outcome", "unknown"))

    def column(self, name: str) -> NDArray[Any]:
        """A numeric column of the step table: int64 or float64, a value per step. Raises UnknownName."""
        if name not in _NUMERIC:
            raise UnknownName(f"no numeric column {name!r} in the step table; there are {', '.join(_NUMERIC)}")
        return numbers(self.steps.column(name))

    def request_column(self, name: str) -> NDArray[Any]:
        """A numeric column of the request table: int64 or float64, a value per request. Raises UnknownName."""
        if name not in _REQUEST_NUMERIC:
            named = ", ".join(_REQUEST_NUMERIC)
            raise UnknownName(f"no numeric column {name!r} in the request table; there are {named}")
        return numbers(self.requests.column(name))

    def forwards(self) -> NDArray[np.int64]:
        """How many forward passes each step had."""
        return sizes(self.steps.column("forward_widths"))

    def sample_column(self, name: str) -> NDArray[np.float64]:
        """A numeric column of the samples, float64, NaN where the log does not tell. Raises UnknownName.

        `waiting_all` is everything that waits, in or before the engine: the sum of `WAITING`, NaN where `waiting` is.
        """
        if name == "waiting_all":
            first, *others = (self.sample_column(each) for each in WAITING)
            return np.asarray(sum((np.nan_to_num(each) for each in others), first), dtype=np.float64)
        if name not in _SAMPLE_NUMERIC:
            named = ", ".join((*_SAMPLE_NUMERIC, "waiting_all"))
            raise UnknownName(f"no numeric column {name!r} in the samples; there are {named}")
        return numbers(self.samples.column(name)).astype(np.float64)

    def step_seconds(self) -> NDArray[np.float64]:
        """How long each step took."""
        seconds: NDArray[np.float64] = self.column("t_end") - self.column("t_start")
        return seconds

    def steps_frame(self) -> Any:
        """The step table as a pandas frame."""
        return self.steps.to_pandas()

    def requests_frame(self) -> Any:
        """The request table as a pandas frame."""
        return self.requests.to_pandas()

    def save(self, folder: Path | str) -> None:
        """Write the run into `folder`, whole or not at all; see `run_files.save`."""
        from .run_files import save

        save(self, Path(folder))

    @classmethod
    def load(cls, folder: Path | str) -> "Run":
        """Read a run; see `run_files.load`."""
        from .run_files import load

        return load(Path(folder))


def _odd(found: Any, wanted: Any) -> str:
    missing = [name for name in wanted.names if name not in found.names]
    foreign = [name for name in found.names if name not in wanted.names]
    if missing or foreign:
        return f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(foreign) or 'none'}"
    return f"found {found.to_string()}"
