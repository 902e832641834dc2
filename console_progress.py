"""An experiment as it runs: the bars that a person watches."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .console import stderr
from .experiment.jobs import Arm, Job, jobs_of
from .experiment.plan import Plan
from .experiment.results import Results
from .experiment.target import check_target


def run_experiment(plan: Plan, folder: Path, arm: Arm, *, quiet: bool) -> tuple[Results, Path]:
    """Run everything, with a progress bar where a person looks on, and save it in the folder that is returned.

    Raises what the runs raise, `UserError` or `OSError`.
    """
    check_target(folder)
    jobs = jobs_of(plan)
    arm.check(jobs)
    with _bars(quiet) as bars:
        watch = _Watch(bars, len(jobs), arm.adjective)
        runs = arm.run(jobs, watch.requests, watch.done)
    results = Results(plan, runs)
    return results, results.save(folder)


def _bars(quiet: bool) -> "AbstractContextManager[Progress | None]":
    console = stderr()
    if quiet or not console.is_terminal:
        return nullcontext()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("{task.fields[clock]}"))
    return Progress(*columns, console=console, transient=True)


class _Watch:
    """Moves the bars: runs done, and requests ended in the run that is being made."""

    def __init__(self, bars: Progress | None, runs: int, adjective: str) -> None:
        self._bars = bars
        self._adjective = adjective
        if bars is not None:
            self._runs = bars.add_task("runs", total=runs, clock="")
            self._requests = bars.add_task("requests", total=None, clock="")

    def requests(self, ended: int, total: int, now: float) -> None:
        if self._bars is not None:
            self._bars.update(self._requests, completed=ended, total=total, clock=f"{now:,.1f} s {self._adjective}")

    def done(self, job: Job) -> None:
        if self._bars is not None:
            self._bars.update(self._runs, advance=1, clock=job.origin)
