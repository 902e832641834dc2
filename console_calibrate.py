"""What a person sees of a calibration."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import Progress

from .console import stderr, stdout
from .console_fit import print_fit, print_regions

if TYPE_CHECKING:
    from .experiment.calibrate import Calibration
    from .experiment.calibration_steps import Spread
    from .sim.fitters import Kind


@contextmanager
def watched(quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar of the steps that were measured, where a person looks on."""
    console = stderr()
    if quiet or not console.is_terminal:
        yield lambda done, total: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("steps", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def warn(spread: "Spread") -> None:
    """Say on stderr that the machine was noisy, if it was."""
    if spread.noisy:
        stderr().print(
            f"warning: the machine was noisy: repeats of the same step spread by {100 * spread.median:.1f} % (middle), "
            f"{100 * spread.worst:.0f} % at worst ({spread.worst_at}). Close other work and calibrate again, or count "
            "the thread's own seconds: --clock cpu --threads 1", soft_wrap=True,
        )


def print_calibration(found: "Calibration", kind: "Kind", path: Path) -> None:
    """The fit that was written, and beside it what the others miss."""
    console, facts = stdout(), found.facts
    console.print(escape(
        f"{facts['model']} in {facts['dtype']} on {facts['device_name']} ({facts['device']}, torch {facts['torch']}, "
        f"threads: {facts['threads']}, clock: {facts['clock']}); attention: {facts['attention']}"
    ), soft_wrap=True)
    console.print(f"repeats of a step spread by {100 * found.spread.median:.1f} % (middle)\n")
    for other, fitted in found.fits.items():
        if other != kind:
            print_regions(console, f"{other} on steps left out of its fit", fitted.regions)
            console.print()
    console.print(f"[bold]{kind}[/bold]")
    print_fit(found.fits[kind], path)
