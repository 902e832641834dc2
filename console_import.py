"""What a person sees of an imported file, and of its samples."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from math import isnan
from pathlib import Path
from typing import Any

from rich.markup import escape

from .console import print_hanging, stdout
from .traces.importers.importer import Imported
from .traces.plain import plain
from .traces.run import Run

LONGEST = 1e9
"""Seconds from the start that are still shown as a date."""
MORE = ("swapped", "deferred", "paused", "outside", "preemptions")
"""Counts that are shown where they are not 0."""


def print_imported(imported: Imported, folder: Path) -> None:
    console = stdout()
    lines, matched = imported.lines, imported.matched
    told = f": {matched:,} of {lines:,} lines matched, {lines - matched:,} did not" if lines else ""
    console.print(f"{imported.format}{told}", soft_wrap=True)
    parts = ((imported.samples, "samples"), (imported.steps, "steps"), (imported.requests, "requests"))
    console.print(", ".join(f"{count:,} {what}" for count, what in parts if count))
    for note in imported.notes:
        print_hanging(console, "note: ", note, "dim")
    console.print(f"run: {escape(str(folder))}", soft_wrap=True)


def report_of(imported: Imported, folder: Path) -> dict[str, Any]:
    """Plain data of what was read."""
    unmatched = imported.lines - imported.matched
    return dict(plain(imported)) | {"unmatched": unmatched, "folder": str(folder)}


def print_samples(run: Run) -> None:
    """A line a sample, on the engine's own clock where it has one; what the log does not tell is left out."""
    start = run.meta.get("clock_start")
    for row in _rows(run):
        print(f"{_moment(row.pop('time'), start)} {row.pop('kind'):<9} {_told(row)}")


def _rows(run: Run) -> Iterator[dict[str, Any]]:
    for batch in run.samples.to_batches(max_chunksize=4096):
        yield from batch.to_pylist()


def _moment(seconds: float, start: str | None) -> str:
    if isnan(seconds):
        return "(no clock)"
    if start is None or abs(seconds) > LONGEST:
        return f"{seconds:12.3f}"
    moment = datetime.fromisoformat(start) + timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"


def _told(row: dict[str, Any]) -> str:
    counts = [f"{row[name]:,} {name}" for name in ("running", "waiting") if row[name] is not None]
    more = [f"{name} {row[name]:,}" for name in MORE if row[name]]
    rates = [
        f"{words} {row[name]:,.1f} tok/s" for name, words in (
            ("prompt_throughput", "prompt"), ("generation_throughput", "generation"),
        ) if not isnan(row[name])
    ]
    shares = [
        f"{words} {100 * row[name]:.1f} %" for name, words in (("kv_usage", "KV"), ("hit_rate", "prefix hits"))
        if not isnan(row[name])
    ]
    return ", ".join((*counts, *more, *rates, *shares))
