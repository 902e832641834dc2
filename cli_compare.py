"""The commands that hold one run against another, or against its own policy."""

from pathlib import Path
from typing import Annotated

import typer

from .cli_options import Json


def compare(
    a: Annotated[Path, typer.Argument(help="A run folder.")],
    b: Annotated[Path, typer.Argument(help="Another one, of the same or another arm.")],
    offset: Annotated[
        float | None,
        typer.Option(min=-1e11, max=1e11, help="Seconds to add to the times of b (left out: found, and printed)."),
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Also write a page that overlays them.")] = None,
    json: Json = False,
) -> None:
    """Compare two runs: identical decisions or the first step that differs, why, and what it comes to."""
    from .console import print_json
    from .console_compare import print_comparison
    from .experiment.model_error import model_errors
    from .experiment.run_folders import load_run
    from .traces.compare import compare as compare_runs
    from .traces.plain import plain

    runs = load_run(a), load_run(b)
    comparison = compare_runs(*runs, offset)
    errors = {"a": model_errors(*runs), "b": model_errors(*reversed(runs))}
    page = {} if html is None else {"page": str(html)}
    if html is not None:
        from .traces.comparison_page import write_comparison

        write_comparison(html, comparison, runs, (str(a), str(b)), errors)
    if json:
        print_json(comparison.to_dict() | {"model_errors": plain(errors)} | page)
        return
    print_comparison(comparison, str(a), str(b), errors)
    for path in page.values():
        typer.echo(f"page: {path}")


def replay(
    run: Annotated[Path, typer.Argument(help="A run folder with steps and requests, of whatever arm.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the decisions as a run.")] = None,
    json: Json = False,
) -> None:
    """Decide a run again at its own step times, with the policy it names, and compare: what differs is no matter of
    time. Exit codes: 0 identical, 1 different."""
    from .console import print_json
    from .console_compare import print_replayed
    from .experiment.replay import replay as decide_again
    from .experiment.run_folders import load_run
    from .traces.compare import compare as compare_runs

    recorded = load_run(run)
    replayed = decide_again(recorded, str(run))
    if out is not None:
        replayed.save(out)
    comparison = compare_runs(recorded, replayed)
    print_json(comparison.to_dict()) if json else print_replayed(comparison, str(run))
    raise typer.Exit(0 if comparison.identical else 1)
