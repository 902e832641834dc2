"""`arcsim calibrate`: measures designed steps on the executor and fits latency models to them. Importing this needs
torch."""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..executor.attention.choose import choose
from ..executor.backend import MeasuredBackend
from ..executor.cache import check_block_size
from ..executor.clock import ticker
from ..executor.model import load
from ..executor.prospect import prospect
from ..executor.ready import ready, use_threads
from ..policies.base import Chunk, Forward, Gauges, Sequence as Request, Step
from ..sim.fitters import KINDS, Kind, fit_kind
from .calibration_design import Limits, Point, design
from .fit import Fitted
from .measured import Choices

Told = Callable[[int, int], None]
"""Called with the steps that were measured, and how many there are."""

NOISY = 0.05
"""Repeats of a step that spread by more than this are worth a warning."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far repeats of the same step lie apart: standard deviation (estimated by the median) over median; the middle
    of all points, and the worst of them."""

    middle: float
    worst: float
    where: str

    @property
    def noisy(self) -> bool:
        return self.middle > NOISY


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fit of each kind to the same steps; `facts` of the machine and of what ran."""

    fits: dict[Kind, Fitted]
    spread: Spread
    facts: dict[str, Any]

    def save(self, kind: Kind, path: Path) -> None:
        """Write the latency file of one kind, with the errors of the others beside its own."""
        self.fits[kind].save(path, {"repeat_spread": {
            "median": float(f"{self.spread.middle:.4g}"), "worst": float(f"{self.spread.worst:.4g}"),
            "worst_at": self.spread.where,
        }, "measured_on": self.facts})

    def as_dict(self) -> dict[str, Any]:
        return {
            "fits": {kind: fitted.as_dict() for kind, fitted in self.fits.items()}, "measured_on": self.facts,
            "repeat_spread": {"median": self.spread.middle, "worst": self.spread.worst, "worst_at": self.spread.where,
                              "noisy": self.spread.noisy},
        }


@dataclass(frozen=True, slots=True)
class Calibrator:
    """`model`: as `run-gpu` takes it. Each designed step is run once unmeasured, then `repeats` times, all steps in a
    new order in every round, so that a slow minute of the machine does not fall on one kind."""

    model: str
    choices: Choices
    limits: Limits
    block_size: int = 16
    repeats: int = 5

    def run(self, told: Told = lambda done, total: None) -> Calibration:
        """Raises `UserError` or `ExecutorError` before a model is loaded where that is possible, else `FitError`."""
        backend, points = self._backend()
        steps = [(place, _step(points[place], self.block_size)) for place in self._order(len(points))]
        measured: list[tuple[int, Step, float, float]] = []
        for done, (place, step) in enumerate(steps):
            backend.launch(step)
            result = backend.collect()
            if done >= len(points):
                measured.append((place, step, result.seconds, result.host_seconds))
            told(done + 1, len(steps))
        return self._fitted(points, measured, backend.facts())

    def _backend(self) -> tuple[MeasuredBackend, list[Point]]:
        use_threads(self.choices.threads)
        check_block_size(self.block_size)
        found = prospect(self.model, device=self.choices.device, dtype=self.choices.dtype)
        ticker(self.choices.clock, found.device)
        choose(self.choices.attention, found.needs(self.block_size))
        context = min(self.limits.context, found.max_model_len or self.limits.context)
        points = design(Limits(self.limits.rows, self.limits.tokens, context))
        blocks = max(point.blocks(self.block_size) for point in points) + 1
        found.require(blocks * self.block_size)
        gc.collect()
        backend = ready(
            load(found, seed=self.choices.seed), blocks=blocks, block_size=self.block_size,
            attention=self.choices.attention, cuda_graphs=self.choices.cuda_graphs, max_num_seqs=self.limits.rows,
            max_model_len=context, clock=self.choices.clock,
        )
        return backend, points

    def _order(self, points: int) -> Iterator[int]:
        random = Random(self.choices.seed)
        for _ in range(self.repeats + 1):
            order = list(range(points))
            random.shuffle(order)
            yield from order

    def _fitted(
        self, points: Sequence[Point], measured: Sequence[tuple[int, Step, float, float]], facts: dict[str, Any]
    ) -> Calibration:
        table = _table(measured)
        places = np.array([place for place, *_ in measured])
        source = f"{len(points)} designed steps of {self.model}, {self.repeats} times each"
        fits = {kind: Fitted(*_swapped(fit_kind(kind, [table], places), source)) for kind in KINDS}
        return Calibration(fits, _spread(points, places, table["t_end"]), facts)
