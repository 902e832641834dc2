"""Where results are written to, looked at before there are any."""

import json
import os
from pathlib import Path
from tempfile import mkdtemp

from ..traces.run_files import META, OWN_FILES
from .errors import UserError

RECORD = "experiment.json"
REPORT = "report.html"
ELSEWHERE = "name another folder with --out"


def check_target(folder: Path) -> None:
    """Before anything runs: the folder can be written, and what is replaced there is all arcsim's.

    Raises `UserError`, `OSError`.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: {ELSEWHERE}")
    if folder.exists():
        _refuse_in_use(folder)
        _refuse_foreign(folder)
    _try_to_write(folder, ELSEWHERE)


def check_file(path: Path) -> None:
    """Before anything is measured: the file can be written. Raises `UserError`."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file with --out")
    _try_to_write(path, "name another file with --out")


def is_taken(folder: Path) -> bool:
    """It holds something already."""
    return folder.is_dir() and any(folder.iterdir())


def _refuse_in_use(folder: Path) -> None:
    """The whole folder is replaced at the end, which these could not be."""
    if os.path.ismount(folder):
        raise UserError(f"{folder} is a mount point: name a folder inside it with --out")
    if Path.cwd().is_relative_to(folder.resolve()):
        raise UserError(f"{folder} holds the working folder: {ELSEWHERE}")


def _refuse_foreign(folder: Path) -> None:
    places = _places(folder)
    foreign = [path for path in sorted(folder.rglob("*")) if not path.is_dir() and not _is_ours(path, folder, places)]
    if foreign:
        named = ", ".join(str(path.relative_to(folder)) for path in foreign[:3])
        raise UserError(f"{folder} holds other files ({named}): {ELSEWHERE}")


def _places(folder: Path) -> list[Path]:
    """Where the folder's own runs lie in it, as its record says; none where it has no record."""
    if not (folder / RECORD).is_file():
        return [Path()] if (folder / META).is_file() else []
    try:
        return [Path(place) for place in json.loads((folder / RECORD).read_text(encoding="utf-8"))["runs"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _is_ours(path: Path, folder: Path, places: list[Path]) -> bool:
    inside = path.relative_to(folder)
    top = inside.parent == Path() and bool(places) and path.name in (RECORD, REPORT)
    return top or (inside.parent in places and path.name in OWN_FILES)


def _try_to_write(path: Path, elsewhere: str) -> None:
    """Permission bits say little (root, read-only mounts): make a folder where the result will be, and remove it."""
    above = next(parent for parent in path.resolve().parents if parent.exists())
    try:
        os.rmdir(mkdtemp(prefix=f".{path.name}.", dir=above))
    except OSError as error:
        reason = f"{above} is a file" if above.is_file() else f"{error.strerror} in {above}"
        raise UserError(f"cannot write {path}: {reason}; {elsewhere}") from error
