"""`arcsim fit`: the affine latency model from measured runs, or from a table of measured totals."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sim.fit import AffineFit, features_of_steps, fit_affine, fit_steps
from ..sim.fit_file import write_fit
from ..traces.quantities import scalar
from ..traces.run import Run
from .errors import UserError
from .fit_table import Total, read_totals
from .run_folders import run_folders
from .simulate import simulate

COLUMNS = ("prefill_seqs", "forward_width", "padded_tokens", "context_tokens", "t_start", "t_end")


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
    """A fit, where it comes from, and its predictions where the measurements are few enough to be listed."""

    fit: AffineFit
    source: str
    predictions: tuple[Prediction, ...] = ()

    def save(self, path: Path) -> None:
        write_fit(self.fit, path, self.source)

    def as_dict(self) -> dict[str, Any]:
        rows = [
            {"label": row.label, "fitted": row.fitted, "seconds": row.seconds, "predicted": row.predicted,
             "error": row.error} for row in self.predictions
        ]
        return {
            "model": dict(zip(self.fit.names, self.fit.coefficients, strict=True)), "source": self.source,
            "mean_relative_error": self.fit.mean_error, "max_relative_error": self.fit.max_error,
            "undetermined": list(self.fit.undetermined), "rows": rows,
        }


def fit_sources(sources: Sequence[Path]) -> Fitted:
    """Folders of runs or experiments, whose steps are fitted together, or one YAML file that describes a table of
    totals. Raises `UserError`, `RunError`, `FitError`."""
    tables = [path for path in sources if path.is_file()]
    if not tables:
        return _of_runs(sources)
    if len(sources) > 1:
        raise UserError(f"{tables[0]}: a table of totals is fitted alone; give it without other sources")
    return _of_totals(tables[0])


def _of_runs(folders: Sequence[Path]) -> Fitted:
    runs = [Run.load(run) for folder in folders for run in run_folders(folder)]
    tables = [{name: run.column(name) for name in COLUMNS} for run in runs]
    return Fitted(fit_steps(tables), "steps of " + ", ".join(str(folder) for folder in folders))


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
    features: NDArray[np.float64] = features_of_steps({name: run.column(name) for name in COLUMNS})
    return np.asarray(features.sum(axis=0))


def _seconds(total: Total, tokens: float) -> float:
    return tokens / total.measured if total.is_rate else total.measured
