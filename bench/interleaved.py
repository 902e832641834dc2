"""A measured run with designed steps in between, off its clock: both meet the same machine, however busy it is."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from arcsim.engine.backend import Backend, StepResult
from arcsim.executor.backend import MeasuredBackend
from arcsim.executor.model import PagedModel
from arcsim.executor.ready import use_threads
from arcsim.experiment.calibration_design import Limits, design
from arcsim.experiment.calibration_steps import Sample, step_of, table_of
from arcsim.experiment.document import load
from arcsim.experiment.jobs import jobs_of
from arcsim.experiment.measured import Choices, MeasuredArm, clock_of
from arcsim.experiment.measured_parts import MeasuredParts
from arcsim.experiment.plan import plan
from arcsim.policies.base import Step
from arcsim.sim.fit_file import write_fit
from arcsim.sim.fitters import fit_kind


class Interleaved:
    """Passes a backend's steps through and runs a designed step after each `every`-th. The KV of live sequences is
    written over, which changes tokens and no durations: outputs are forced to their lengths."""

    def __init__(self, backend: MeasuredBackend, limits: Limits, block_size: int, every: int) -> None:
        self.empty_step, self.clock = backend.empty_step, backend.clock
        self.samples: list[Sample] = []
        self._backend = backend
        self._every = every
        self._live = 0
        self._steps = [step_of(point, block_size) for point in design(limits)]
        self._order = self._rounds()

    def launch(self, step: Step) -> None:
        self._backend.launch(step)

    def collect(self) -> StepResult:
        result = self._backend.collect()
        self._live += 1
        if self._live % self._every == 0:
            self._sample(next(self._order))
        return result

    def _sample(self, place: int) -> None:
        step = self._steps[place]
        self._backend.launch(step)
        result = self._backend.collect()
        self.samples.append(Sample(place, step.totals, result.seconds, result.host_seconds))

    def _rounds(self) -> Iterator[int]:
        random = Random(0)
        while True:
            yield from random.sample(range(len(self._steps)), len(self._steps))

    def series(self, step: Step, steps: int) -> None:
        return None


class InterleavedArm(MeasuredArm):
    """Keeps the backend of the run that it made last."""

    made: Interleaved
    limits: Limits
    every: int

    def _backend(self, model: PagedModel, parts: MeasuredParts, late: bool) -> Backend:
        backend = super()._backend(model, parts, late)
        assert isinstance(backend, MeasuredBackend)
        self.facts: dict[str, Any] = backend.facts()
        self.made = Interleaved(backend, self.limits, parts.block_size, self.every)
        return self.made


def interleaved_run(
    config: Path, sets: Sequence[str], folder: Path, *, clock: str, limits: Limits, every: int
) -> None:
    """Serve the only cell and variant of an experiment; save the run as `measured` and the fit to the steps in between
    as `latency.yaml` in the folder."""
    use_threads(1)
    arm = InterleavedArm(Choices(device="cpu", threads=1, clock=clock_of(clock)))
    arm.limits, arm.every = limits, every
    jobs = jobs_of(plan(load(str(config)), sets, []))
    arm.check(jobs)
    [run] = arm.run(jobs, lambda ended, total, now: None, lambda job: None).values()
    run.meta["measured"] = arm.facts
    run.save(folder / "measured")
    samples = arm.made.samples
    fit, regions = fit_kind("table", [table_of(samples)], np.array([sample.place for sample in samples]))
    write_fit(fit, folder / "latency.yaml", f"{len(samples)} designed steps in between", regions,
              {"measured_on": arm.facts})
