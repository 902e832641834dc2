"""The runs that lie in a folder: a run's own, or that of an experiment."""

from pathlib import Path

from ..traces.run import Run
from ..traces.run_files import is_run, runs_inside
from .errors import UserError


def run_folders(folder: Path) -> list[Path]:
    """The folder itself where it is a run, else the runs in it: of variants, or of cells and their variants."""
    if is_run(folder) or not folder.is_dir():
        return [folder]
    below = (path for path in sorted(folder.iterdir()) if path.is_dir())
    return runs_inside(folder) or [run for path in below for run in runs_inside(path)] or [folder]


def load_run(folder: Path) -> Run:
    """The run of a folder that holds one. Raises `UserError` with their names where it holds several, `RunError`."""
    found = run_folders(folder)
    if len(found) > 1:
        named = "\n  ".join(str(path) for path in found)
        raise UserError(f"{folder} holds {len(found)} runs; name one of them:\n  {named}")
    return Run.load(found[0])
