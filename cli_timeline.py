"""The command that writes a run as trace events."""

from pathlib import Path
from typing import Annotated

import typer


def timeline(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file (default: timeline.json in the run); .gz compresses.")
    ] = None,
) -> None:
    """Write a run as a trace for Perfetto or chrome://tracing: sequences, steps, gauges."""
    from .experiment.run_folders import load_run, run_folders
    from .traces.timeline_file import NAME, write_timeline

    loaded = load_run(run)
    path = run_folders(run)[0] / NAME if out is None else out
    events = write_timeline(path, loaded)
    typer.echo(f"timeline: {path} ({events:,} events; open it with Perfetto or chrome://tracing)")
