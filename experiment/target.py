"""The folder that the results of an experiment are written to."""

import os
from pathlib import Path
from tempfile import mkdtemp

from ..traces.run_files import META, OWN_FILES
from .errors import UserError

RECORD = "experiment.json"
REPORT = "report.html"
OWN = OWN_FILES | {RECORD, REPORT}
ELSEWHERE = "name another folder with --out"


def check_target(folder: Path) -> None:
    """Before anything runs: the folder can be written, and what is replaced there is all arcsim's.

    Raises `UserError`, `OSError`.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: {ELSEWHERE}")
    if folder.exists():
        _refuse_foreign(folder)
    _try_to_write(folder)


def _refuse_foreign(folder: Path) -> None:
    held = sorted(folder.iterdir())
    if not held:
        return
    ours = any((folder / name).is_file() for name in (RECORD, META))
    inside = sorted(folder.rglob("*")) if ours else held
    foreign = [path for path in inside if not ours or (path.name not in OWN and not path.is_dir())]
    if foreign:
        named = ", ".join(str(path.relative_to(folder)) for path in foreign[:3])
        raise UserError(f"{folder} holds other files ({named}): {ELSEWHERE}")


def _try_to_write(folder: Path) -> None:
    """Permission bits say little (root, read-only mounts): make a folder where the result will be, and remove it."""
    above = next(parent for parent in folder.resolve().parents if parent.exists())
    try:
        os.rmdir(mkdtemp(prefix=f".{folder.name}.", dir=above))
    except OSError as error:
        reason = f"{above} is a file" if above.is_file() else f"{error.strerror} in {above}"
        raise UserError(f"cannot write {folder}: {reason}; {ELSEWHERE}") from error
