"""`arcsim calibrate`: measures designed steps on the executor and fits latency models to them. Importing this needs
torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..executor.attention.choose import choose
from ..executor.backend import MeasuredBackend
from ..executor.cache import check_block_size
from ..executor.clock import ticker
from ..executor.model import load
from ..executor.prospect import Prospect, prospect
from ..executor.ready import ready, use_threads
from ..sim.fit_file import region_rows
from ..sim.fitters import KINDS, Kind, fit_kind
from .calibration_design import Limits, Point, design
from .calibration_steps import Sample, Spread, rounds, spread_of, step_of, table_of
from .fit import Fitted
from .measured import Choices

Told = Callable[[int, int], None]
"""Called with the steps that were measured, and how many there are."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fit of each kind to the same steps; `facts` of the machine and of what ran."""

    fits: dict[Kind, Fitted]
    spread: Spread
    facts: dict[str, Any]

    def save(self, kind: Kind, path: Path) -> None:
        """Write the latency file of one kind, with the errors of the others beside its own."""
        others = {
            other: region_rows(fitted.regions) for other, fitted in self.fits.items() if other != kind
        }
        self.fits[kind].save(path, {
            "cross_validated_others": others, "repeat_spread": self.spread.as_dict(), "measured_on": self.facts,
        })

    def as_dict(self) -> dict[str, Any]:
        return {
            "fits": {kind: fitted.as_dict() for kind, fitted in self.fits.items()}, "measured_on": self.facts,
            "repeat_spread": self.spread.as_dict() | {"noisy": self.spread.noisy},
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
        found = prospect(self.model, device=self.choices.device, dtype=self.choices.dtype)
        points = self._points(found)
        backend = self._backend(found, max(point.blocks(self.block_size) for point in points))
        steps = [step_of(point, self.block_size) for point in points]
        order = rounds(len(points), self.repeats + 1, self.choices.seed)
        samples = []
        for done, place in enumerate(order):
            backend.launch(steps[place])
            result = backend.collect()
            if done >= len(points):  # the first round warms up
                samples.append(Sample(place, steps[place].totals, result.seconds, result.host_seconds))
            told(done + 1, len(order))
        return self._fitted(points, samples, backend.facts())

    def _points(self, found: Prospect) -> list[Point]:
        """What can be told before a model is loaded is found here."""
        use_threads(self.choices.threads)
        check_block_size(self.block_size)
        ticker(self.choices.clock, found.device)
        choose(self.choices.attention, found.needs(self.block_size))
        context = min(self.limits.context, found.max_model_len or self.limits.context)
        return design(Limits(self.limits.rows, self.limits.tokens, context))

    def _backend(self, found: Prospect, blocks: int) -> MeasuredBackend:
        found.require(blocks * self.block_size)
        return ready(
            load(found, seed=self.choices.seed), blocks=blocks, block_size=self.block_size,
            attention=self.choices.attention, cuda_graphs=self.choices.cuda_graphs, max_num_seqs=self.limits.rows,
            max_model_len=self.limits.context, clock=self.choices.clock,
        )

    def _fitted(self, points: Sequence[Point], samples: Sequence[Sample], facts: dict[str, Any]) -> Calibration:
        table, places = table_of(samples), np.array([sample.place for sample in samples])
        source = f"{len(points)} designed steps of {self.model}, {self.repeats} times each"
        fits: dict[Kind, Fitted] = {}
        for kind in KINDS:
            fit, regions = fit_kind(kind, [table], places)
            fits[kind] = Fitted(fit, source, regions=regions)
        return Calibration(fits, spread_of(points, samples), facts)
