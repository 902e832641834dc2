"""The file of a run's trace events."""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from .atomic import write_file_by
from .plain import plain
from .run import Run
from .timeline import events

NAME = "timeline.json"
ABOUT = ("arm", "policy", "outcome", "origin")


def write_timeline(path: Path | str, run: Run) -> int:
    """Write the run's trace events, compressed where `path` ends in .gz; returns how many there are.

    Equal runs give equal bytes. Raises OSError, with one message that names `path`, where it cannot be written.
    """
    counts = []

    def write(beside: Path) -> None:
        with _opened(beside, Path(path).suffix == ".gz") as file:
            counts.append(_write(run, file))

    write_file_by(path, write)
    return counts[0]


def _write(run: Run, file: TextIO) -> int:
    about = {name: str(plain(run.meta[name])) for name in ABOUT if name in run.meta}
    file.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[')
    count = 0
    for event in events(run):
        file.write(f"{',' if count else ''}\n{event}")
        count += 1
    file.write("\n]}\n")
    return count


@contextmanager
def _opened(path: Path, compressed: bool) -> Iterator[TextIO]:
    if not compressed:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        return
    with (
        path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,  # no name, no time: equal bytes
        TextIOWrapper(packed, "utf-8", newline="\n") as file,
    ):
        yield file
