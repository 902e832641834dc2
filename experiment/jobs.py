"""The runs of an experiment, one after the other or on all cores."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ..traces.run import Run
from .parts import check_parts
from .plan import Config, Plan
from .serve import Progress
from .simulate import simulate
from .workers import spread

Key = tuple[int, str]
"""Place of the cell in the plan, and the variant."""

LONG = 6.0
"""Seconds of work from which starting worker processes pays."""


@dataclass(frozen=True, slots=True)
class Job:
    """One variant in one cell."""

    key: Key
    config: Config
    origin: str


Made = Iterator[tuple[Job, Run]]
Done = Callable[[Job], None]


class Arm(Protocol):
    """Where the durations of steps come from. `adjective`: of its seconds, for people."""

    @property
    def adjective(self) -> str: ...

    def check(self, jobs: Sequence[Job]) -> None:
        """Raises `UserError`, or another ValueError, for what cannot run; before anything does."""

    def run(self, jobs: Sequence[Job], progress: Progress, done: Done) -> dict[Key, Run]:
        """All runs, in the order of the jobs; an interrupted one is the last. See `run_jobs`."""


@dataclass(frozen=True, slots=True)
class SimulatedArm:
    """`workers`: processes, None for as many as pay. `audit`: the laws are checked after every step."""

    workers: int | None
    audit: bool
    adjective: str = "simulated"

    def check(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            check_parts(job.config)

    def run(self, jobs: Sequence[Job], progress: Progress, done: Done) -> dict[Key, Run]:
        return run_jobs(jobs, workers=self.workers, audit=self.audit, progress=progress, done=done)


def jobs_of(plan: Plan) -> list[Job]:
    name = plan.shape.name
    return [
        Job((place, variant), config, " / ".join(part for part in (name, cell.label, variant) if part))
        for place, cell in enumerate(plan.cells) for variant, config in cell.configs.items()
    ]


def run_jobs(
    jobs: Sequence[Job], *, workers: int | None, audit: bool, progress: Progress | None = None,
    done: Done | None = None,
) -> dict[Key, Run]:
    """All runs, in the order of the jobs; an interrupted one is the last.

    `workers` None: the first run is made here, and where that says that the others take long they go to all cores.
    `progress` hears of the requests of runs made here, `done` of each run. Raises what `simulate` raises.
    """
    runs: dict[Key, Run] = {}
    for job, run in _all(jobs, workers, audit, progress):
        runs[job.key] = run
        if done is not None:
            done(job)
    return {job.key: runs[job.key] for job in jobs if job.key in runs}


def _all(jobs: Sequence[Job], workers: int | None, audit: bool, progress: Progress | None) -> Made:
    work = partial(_run, audit)
    if workers is not None and workers > 1:
        yield from spread(work, jobs, workers)
        return
    started = time.monotonic()
    for place, job in enumerate(jobs):
        run = simulate(job.config, audit=audit, progress=progress, origin=job.origin)
        yield job, run
        if run.outcome == "interrupted":
            return
        rest = jobs[place + 1:]
        if workers is None and len(rest) > 1 and (time.monotonic() - started) / (place + 1) * len(rest) > LONG:
            yield from spread(work, rest, _cores())
            return


def _run(audit: bool, job: Job) -> Run:
    return simulate(job.config, audit=audit, origin=job.origin)


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
