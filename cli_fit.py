"""The commands that make a latency model: of runs that there are, or of steps measured for it."""

from pathlib import Path
from typing import Annotated

import typer

from .cli_options import Json


def fit(
    sources: Annotated[list[Path], typer.Argument(help="Run folders, or one YAML that describes a table of totals.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The latency file to write.")],
    model: Annotated[str, typer.Option(help="affine: a few straight lines. table: the cost at knots (runs only).")] = (
        "affine"
    ),
    json: Json = False,
) -> None:
    """Fit a latency model to measured steps (runs), or the affine one to measured totals (a table)."""
    from .console import print_json
    from .console_fit import print_fit
    from .experiment.fit import fit_sources

    fitted = fit_sources(sources, model)
    fitted.save(out)
    if json:
        print_json(fitted.as_dict() | {"file": str(out)})
    else:
        print_fit(fitted, out)


def calibrate(
    model: Annotated[str, typer.Option("--model", "-m", help="As for run-gpu: a preset, a directory, a hub id.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The latency file to write.")],
    kind: Annotated[str, typer.Option("--latency", help="Which model the file holds: table or affine.")] = "table",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:N, or auto: CUDA where there is one.")] = "auto",
    attention: Annotated[str, typer.Option(help="As for run-gpu.")] = "auto",
    dtype: Annotated[str, typer.Option(help="float32, float16, bfloat16, or auto: that of the model.")] = "auto",
    block_size: Annotated[int, typer.Option(min=1, help="Tokens in a KV block.")] = 16,
    rows: Annotated[int, typer.Option(help="Most sequences in a step.")] = 32,
    tokens: Annotated[int, typer.Option(help="Most prefill tokens in a step.")] = 512,
    context: Annotated[int, typer.Option(help="Longest sequence.")] = 1024,
    repeats: Annotated[int, typer.Option(min=2, help="How often each step is measured.")] = 5,
    cuda_graphs: Annotated[bool, typer.Option(help="Replay decode steps from CUDA graphs.")] = True,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads (left out: torch's own number).")] = None,
    clock: Annotated[str, typer.Option(help="wall, or cpu: the thread's own seconds, on a busy machine.")] = "wall",
    seed: Annotated[int, typer.Option(min=0, help="Of random weights, and of the order of the steps.")] = 0,
    json: Json = False,
) -> None:
    r"""Measure designed steps of a model on this machine and fit the latency model that `simulate` takes. Needs
    arcsim\[executor]."""
    from .console import print_json
    from .console_calibrate import print_calibration, warn, watched
    from .experiment.calibration_design import Limits
    from .experiment.fit import known_kind
    from .experiment.target import check_file
    from .experiment.torch_needed import torch_needed

    with torch_needed("calibrate"):
        from .experiment.calibrate import Calibrator
        from .experiment.measured import Choices, clock_of
    wanted = known_kind(kind, "--latency")
    check_file(out)
    choices = Choices(device, attention, dtype, "forced", cuda_graphs, threads, seed, clock_of(clock))
    with watched(quiet=json) as told:
        found = Calibrator(model, choices, Limits(rows, tokens, context), block_size, repeats).run(told)
    found.save(wanted, out)
    warn(found.spread)
    print_json(found.as_dict() | {"file": str(out)}) if json else print_calibration(found, wanted, out)
