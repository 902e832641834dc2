"""What can be imported, and the import itself."""

from pathlib import Path
from typing import Any

from ..run_files import save
from .errors import ImportFault
from .importer import FileImporter, Imported, LogImporter
from .log import choose_log, import_log
from .log_vllm import VllmReader
from .options import ImportOptions
from .source import read_head
from .vllm_record import RECORD

FILES: tuple[FileImporter, ...] = (RECORD,)
"""Files that are read whole; the first that recognises a file takes it."""

LOGS: tuple[LogImporter, ...] = (
    LogImporter("vllm", "vLLM's log: interval lines of 2023, v0 and v1, iterations", VllmReader),
)
"""Logs, read line by line; where two take equally many lines, the first has it."""

AUTO = "auto"


def import_file(path: Path, out: Path, engine: str = AUTO, options: ImportOptions | None = None) -> Imported:
    """Read `path` (plain or gzipped) and write its run into the folder `out`, whole or not at all.

    `engine`: a name in `FILES` or `LOGS`; `auto` finds out. Raises ImportFault where nothing in the file is known, and
    RunError where `out` holds something else; OSError passes through.
    """
    chosen, options = _choose(path, engine, options or ImportOptions()), options or ImportOptions()
    meta = _meta(path, chosen, options)
    if isinstance(chosen, LogImporter):
        return import_log(path, chosen, options, out, meta)
    run = chosen.read(path, options)
    run.meta.update({key: value for key, value in meta.items() if key not in run.meta})
    save(run, out)
    notes = tuple(run.meta["notes"])
    return Imported(chosen.name, 0, 0, run.samples.num_rows, run.steps.num_rows, run.requests.num_rows, notes)


def importers() -> tuple[FileImporter | LogImporter, ...]:
    return (*FILES, *LOGS)


def names() -> tuple[str, ...]:
    return tuple(importer.name for importer in importers())


def _choose(path: Path, engine: str, options: ImportOptions) -> FileImporter | LogImporter:
    if engine != AUTO:
        found = next((each for each in importers() if each.name == engine), None)
        if found is None:
            raise ImportFault(f"no engine or format {engine!r}; there are {AUTO}, {', '.join(names())}")
        return found
    head = read_head(path)
    return next((each for each in FILES if each.recognises(head)), None) or choose_log(path, LOGS, options)


def _meta(path: Path, chosen: FileImporter | LogImporter, options: ImportOptions) -> dict[str, Any]:
    return {
        "arm": "measured", "engine": chosen.name, "outcome": "imported", "report": "", "origin": str(path), "notes": [],
        "source": {"file": str(path), "format": chosen.name, "rank": options.rank, "offset": options.offset},
    }
