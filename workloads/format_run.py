"""The requests of a run folder, of whatever arm: what an engine served can be served again in simulation."""

from pathlib import Path
from typing import Any

import numpy as np

from .error import WorkloadError
from .format import Format, Head, Reading
from .rows import Rows

REQUESTS = "requests.parquet"
COLUMNS = ("id", "arrival", "prompt_tokens", "output_tokens", "status")


def _matches(head: Head) -> bool:
    return head.path.name == REQUESTS or (head.path / REQUESTS).is_file()


def _read(path: Path, reading: Reading) -> Rows:
    table = _table(path / REQUESTS if path.is_dir() else path)
    prompts, outputs = (table.column(name).to_numpy().astype(np.int64) for name in ("prompt_tokens", "output_tokens"))
    cut = sum(status != "finished" for status in table.column("status").to_pylist())
    notes = ["a run holds no prompts: they share nothing"]
    notes += [f"{cut} requests were not finished: their outputs are those they got"] if cut else []
    times = table.column("arrival").to_numpy().astype(np.float64)
    return Rows(prompts, outputs, times, ids=tuple(table.column("id").to_pylist()), notes=tuple(notes))


def _table(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise WorkloadError(f"{path}: not a readable Parquet file: {reason}") from None
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise WorkloadError(f"{path}: not the requests of a run: no column {', '.join(missing)}")
    return table


RUN = Format("run", "a run folder, simulated, measured or imported: its requests, when and how long", _matches, _read)
