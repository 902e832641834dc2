"""The folder of a run: steps.parquet, requests.parquet, run.json, and samples.parquet of an imported log."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .arrow import arrow_schema
from .atomic import write_folder
from .plain import plain
from .run import Run, no_samples
from .schema import REQUEST_COLUMNS, SAMPLE_COLUMNS, STEP_COLUMNS, Column

STEPS, REQUESTS, META, SAMPLES = "steps.parquet", "requests.parquet", "run.json", "samples.parquet"
FORMAT = 1
OWN_FILES = frozenset({
    STEPS, REQUESTS, META, SAMPLES, "report.html", "compare.html", "timeline.json", "timeline.json.gz",
})
"""What a run folder may hold and be replaced with all it holds."""


class RunError(ValueError):
    """A folder is not a run, or is not to be written over."""


def save(run: Run, folder: Path) -> None:
    """Write `run` into `folder`: whole, or not at all. Equal runs give equal bytes.

    An empty folder and a former run are replaced. Raises RunError where `folder` holds anything else, and OSError
    with one message that names it where it cannot be written (no space, no permission).
    """
    refuse_to_overwrite(folder)
    text = meta_text(run.meta)

    def fill(inside: Path) -> None:
        write_table(run.steps, inside / STEPS)
        write_table(run.requests, inside / REQUESTS)
        if run.samples.num_rows:
            write_table(run.samples, inside / SAMPLES)
        (inside / META).write_text(text, encoding="utf-8", newline="\n")

    write_folder(folder, fill)


def meta_text(meta: Mapping[str, Any]) -> str:
    """What run.json holds."""
    return json.dumps({"format": FORMAT, **plain(meta)}, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def load(folder: Path) -> Run:
    """Read the run in `folder`. Raises RunError that names the file and what is wrong with it."""
    _refuse_to_read(folder)
    meta = _read_meta(folder / META)
    found = folder / SAMPLES
    samples = _read_table(found, SAMPLE_COLUMNS) if found.is_file() else no_samples()
    steps, requests = _read_table(folder / STEPS, STEP_COLUMNS), _read_table(folder / REQUESTS, REQUEST_COLUMNS)
    return Run(steps, requests, meta, samples)


def is_run(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (STEPS, REQUESTS, META))


def runs_inside(folder: Path) -> list[Path]:
    """The run folders right below `folder`, by name."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and is_run(path)) if folder.is_dir() else []


def write_table(table: Any, path: Path) -> None:
    from pyarrow import parquet

    # One chunk a column: how the table was pieced together must not show in the bytes.
    parquet.write_table(table.combine_chunks(), path, compression="zstd", row_group_size=1 << 20)


def _read_table(path: Path, columns: Sequence[Column]) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise RunError(f"{path}: not a readable Parquet file: {_first_line(error)}") from error
    missing = [column.name for column in columns if column.name not in table.column_names]
    if missing:
        raise RunError(f"{path}: columns missing: {', '.join(missing)}; written by another version? Run it again")
    try:
        return table.select([column.name for column in columns]).cast(arrow_schema(columns))
    except pa.ArrowException as error:
        raise RunError(f"{path}: a column has the wrong type: {_first_line(error)}") from error


def _read_meta(path: Path) -> dict[str, Any]:
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: not readable as JSON: {_first_line(error)}") from error
    if not isinstance(meta, Mapping) or "format" not in meta:
        raise RunError(f"{path}: not the record of a run: no `format` in it")
    if meta["format"] != FORMAT:
        raise RunError(f"{path}: format {meta['format']!r}, but this version reads format {FORMAT}")
    return {key: value for key, value in meta.items() if key != "format"}


def _refuse_to_read(folder: Path) -> None:
    if not folder.exists():
        raise RunError(f"no run at {folder}: there is no such folder")
    if not folder.is_dir():
        raise RunError(f"no run at {folder}: a run is a folder, this is a file")
    missing = [name for name in (META, STEPS, REQUESTS) if not (folder / name).is_file()]
    if missing:
        inside = [str(path) for path in runs_inside(folder)]
        hint = f"; name one of the runs inside it: {', '.join(inside)}" if inside else ""
        raise RunError(f"no run at {folder}: it has no {', '.join(missing)}{hint}")


def refuse_to_overwrite(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunError(f"{folder} is a file: name another folder for the run")
    held = sorted(path.name for path in folder.iterdir())
    foreign = [name for name in held if name not in OWN_FILES]
    if foreign or (held and META not in held):
        named = ", ".join((foreign or held)[:3])
        raise RunError(f"{folder} holds files that are not those of a run ({named}): name another folder for the run")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
