"""`arcsim fit`: a latency model from the steps of measured runs, or the affine one from a table of measured totals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sim.cross_validation import RegionError
from ..sim.fit import NEEDED, AffineFit, features_of_steps, fit_affine
from ..sim.fit_file import region_rows, write_fit
from ..sim.fitters import KINDS, Kind, fit_kind
from ..sim.measured import COLUMNS
from ..sim.table_fit import TableFit
from ..traces.known import known_columns
from ..traces.quantities import own_starts, scalar
from ..traces.run import Run
from .errors import UserError, suggestion
from .fit_table import Total, read_totals
from .run_folders import run_folders
from .simulate import simulate

UNTOLD = {"decode_tokens": "decode_seqs", "padded_tokens": "prefill_tokens"}
"""What stands for a column that an engine's log does not tell: a token for each row, and no padding."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A measured row and what the fitted model gives for it, both in seconds for that many generated tokens."""

    label: str
    fitted: bool
    seconds: float
    predicted: float
    tokens: float

    @property
    def error(self) -> float:
        """Relative error of the tokens per second."""
        return self.seconds / self.predicted - 1


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fit, where it comes from, its predictions where the measurements are few enough to be listed, and what fits on
    a part of the steps miss on the others, by region."""

    fit: AffineFit | TableFit
    source: str
    predictions: tuple[Prediction, ...] = ()
    regions: tuple[RegionError, ...] = ()

    def save(self, path: Path, more: Mapping[str, Any] | None = None) -> None:
        write_fit(self.fit, path, self.source, self.regions, more)

    def as_dict(self) -> dict[str, Any]:
        rows = [
            {"label": row.label, "fitted": row.fitted, "seconds": row.seconds, "predicted": row.predicted,
             "error": row.error} for row in self.predictions
        ]
        return {
            "model": {key: value for key, value in self.fit.settings().items() if key != "kind"},
            "kind": self.fit.settings()["kind"], "source": self.source, "mean_relative_error": self.fit.mean_error,
            "max_relative_error": self.fit.max_error, "undetermined": list(getattr(self.fit, "undetermined", ())),
            "notes": list(getattr(self.fit, "notes", ())), "cross_validated": region_rows(self.regions), "rows": rows,
        }


def fit_sources(sources: Sequence[Path], kind: str = "affine") -> Fitted:
    """Folders of runs or experiments, whose steps are fitted together, or one YAML file that describes a table of
    totals (affine only). Raises `UserError`, `RunError`, `FitError`."""
    known = known_kind(kind)
    tables = [path for path in sources if path.is_file()]
    if not tables:
        return _of_runs(sources, known)
    if len(sources) > 1:
        raise UserError(f"{tables[0]}: a table of totals is fitted alone; give it without other sources")
    if known != "affine":
        raise UserError(f"{tables[0]}: totals fix the few numbers of --model affine only; {kind} needs runs")
    return _of_totals(tables[0])


def known_kind(name: str, option: str = "--model") -> Kind:
    """Raises `UserError`, naming the option, where there is no such model to fit."""
    for kind in KINDS:
        if name == kind:
            return kind
    raise UserError(f"{option} {name}: no such latency model to fit; {suggestion(name, KINDS)}")


def step_columns(run: Run) -> dict[str, Any]:
    """What a fit of single steps reads of a run. A step that was scheduled while the one before it ran took what it
    took after that."""
    names, known = (*COLUMNS, "attended_tokens", "host_seconds"), {*known_columns(run)}
    columns: dict[str, Any] = {
        name: run.column(name if name in known else UNTOLD.get(name, name)) for name in names
    }
    return columns | {"forwards": np.maximum(run.forwards(), 1), "t_start": own_starts(run)}


def _of_runs(folders: Sequence[Path], kind: Kind) -> Fitted:
    runs = [Run.load(run) for folder in folders for run in run_folders(folder)]
    fit, regions = fit_kind(kind, [step_columns(run) for run in runs])
    return Fitted(fit, "steps of " + ", ".join(str(folder) for folder in folders), regions=regions)


def _of_totals(path: Path) -> Fitted:
    totals = read_totals(path)
    runs = [simulate(total.cell.configs[total.variant], origin=total.label) for total in totals]
    features = np.array([_features(run) for run in runs])
    tokens = np.array([scalar(run, "generated_tokens") for run in runs])
    seconds = np.array([_seconds(total, count) for total, count in zip(totals, tokens, strict=True)])
    chosen = np.array([total.fitted for total in totals])
    labels = [total.label for total in totals if total.fitted]
    fit = fit_affine(features[chosen], seconds[chosen], labels=labels)
    rows = zip(totals, seconds.tolist(), fit.predict(features).tolist(), tokens.tolist(), strict=True)
    predictions = tuple(Prediction(total.label, total.fitted, *numbers) for total, *numbers in rows)
    return Fitted(fit, f"totals of {path.name}", predictions)


def _features(run: Run) -> NDArray[np.float64]:
    """Counts summed over a run. Its decisions do not depend on its times where all requests arrive at once."""
    features: NDArray[np.float64] = features_of_steps({name: run.column(name) for name in NEEDED})
    return np.asarray(features.sum(axis=0))


def _seconds(total: Total, tokens: float) -> float:
    return tokens / total.measured if total.is_rate else total.measured
