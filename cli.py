"""The command line: parse, call, print."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .cli_compare import compare, replay
from .cli_fit import calibrate, fit
from .cli_options import Json
from .cli_timeline import timeline

if TYPE_CHECKING:
    from .experiment.jobs import Arm
    from .experiment.plan import Plan
    from .experiment.results import Results

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Write an LLM-serving scheduling policy once; see what it does to the batch. Results go to stdout, "
    "diagnostics to stderr. Exit codes: 0 confirmed (or nothing predicted), 1 refuted, 2 invalid or an error.",
)

Configs = Annotated[str, typer.Option("--config", "-c", help="An experiment file, or a bundled one by name.")]
Sets = Annotated[
    list[str], typer.Option("--set", help="Override a key: engine.max_num_seqs=64, policy=./mine.py:Mine. Repeatable.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the verdict, and why if it is not CONFIRMED.")]


def _version(asked: bool) -> None:
    if asked:
        from . import __version__

        typer.echo(f"arcsim {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks. May stand anywhere.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of every command."""


@app.command()
def simulate(
    config: Configs,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for runs and report.")] = None,
    sets: Sets = [],  # noqa: B006 - typer wants a list
    variant: Annotated[list[str], typer.Option(help="Run only this variant. Repeatable.")] = [],  # noqa: B006
    audit: Annotated[bool, typer.Option("--audit", help="Check the laws of scheduling after every step.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes (left out: all cores if it pays).")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run an experiment in simulation: every variant in every cell, then the verdict."""
    from .experiment.document import load
    from .experiment.jobs import SimulatedArm
    from .experiment.plan import plan

    planned = plan(load(config), sets, variant)
    folder = out if out is not None else Path("runs") / planned.shape.name
    _run(planned, folder, SimulatedArm(jobs, audit), quiet=quiet, json=json)


@app.command()
def run_gpu(
    config: Configs,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="A preset or config.json (random weights), a Hugging Face "
                                 "directory, or a model of the hub (left out: the experiment's).")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:N, or auto: CUDA where there is one.")] = "auto",
    attention: Annotated[
        str, typer.Option(help="auto, flash_attn, flashinfer, torch_varlen, cpp or reference.")
    ] = "auto",
    dtype: Annotated[str, typer.Option(help="float32, float16, bfloat16, or auto: that of the model.")] = "auto",
    outputs: Annotated[
        str, typer.Option(help="forced: as long as the workload says; sampled: until the model ends them.")
    ] = "forced",
    cuda_graphs: Annotated[bool, typer.Option(help="Replay decode steps from CUDA graphs.")] = True,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads (left out: torch's own number).")] = None,
    clock: Annotated[str, typer.Option(help="wall, or cpu: the thread's own seconds, on a busy machine.")] = "wall",
    seed: Annotated[int, typer.Option(min=0, help="Of random weights.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for runs and report.")] = None,
    sets: Sets = [],  # noqa: B006
    variant: Annotated[list[str], typer.Option(help="Run only this variant. Repeatable.")] = [],  # noqa: B006
    audit: Annotated[bool, typer.Option("--audit", help="Check the laws of scheduling after every step.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    r"""Run an experiment on a real model with a paged KV cache, on a GPU or a CPU: every step is measured. Needs
    arcsim\[executor]."""
    from .experiment.document import load
    from .experiment.plan import plan
    from .experiment.torch_needed import torch_needed

    with torch_needed("run-gpu"):
        from .experiment.measured import Choices, MeasuredArm, clock_of, outputs_of
    planned = plan(load(config), [*sets, *([] if model is None else [f"model={model}"])], variant)
    folder = out if out is not None else Path("runs") / f"{planned.shape.name}.measured"
    choices = Choices(device, attention, dtype, outputs_of(outputs), cuda_graphs, threads, seed, clock_of(clock))
    _run(planned, folder, MeasuredArm(choices, audit), quiet=quiet, json=json)


def _run(planned: "Plan", folder: Path, arm: "Arm", *, quiet: bool, json: bool) -> None:
    from .console_progress import run_experiment

    results, folder = run_experiment(planned, folder, arm, quiet=quiet or json)
    _print_results(results, folder, quiet=quiet, json=json)
    raise typer.Exit(130 if results.interrupted else results.exit_code)


def _print_results(results: "Results", folder: Path, *, quiet: bool, json: bool) -> None:
    from .console import print_json
    from .console_results import print_results, print_trouble, print_verdict

    print_trouble(results)
    if json:
        print_json(results.as_dict() | {"folder": str(folder)})
    elif quiet:
        print_verdict(results.verdict)
    else:
        print_results(results, folder)


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    interval: Annotated[float | None, typer.Option(help="Seconds between two lines (default: the engine's).")] = None,
    rate: Annotated[str, typer.Option(help="Hit rate of the window (interval) or since the start (lifetime).")] = (
        "interval"
    ),
    throughput: Annotated[str, typer.Option(help="Tokens that count: generated, or as the engine logged.")] = (
        "generated"
    ),
    json: Json = False,
) -> None:
    """Replay the engine's interval log lines from a trace, with the forward width beside them.

    Of an imported log: its samples, as the engine told them.
    """
    from .console import print_json, print_log
    from .console_import import print_samples
    from .experiment.run_folders import load_run
    from .traces.interval import interval_lines, log_style
    from .traces.plain import plain

    loaded = load_run(run)
    if loaded.samples.num_rows:
        print_json(plain(loaded.samples.to_pylist())) if json else print_samples(loaded)
        return
    style = str(loaded.meta.get("log_style", "mistralrs"))
    every = log_style(style).interval if interval is None else interval
    lines = interval_lines(loaded, style, every, rate=rate, throughput=throughput)
    if json:
        print_json([plain(line) for line in lines])
    else:
        print_log(lines, style, every)


@app.command("import")
def import_(
    log: Annotated[Path, typer.Argument(help="A log or results file, plain or gzipped.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the run (default: runs/NAME).")] = None,
    engine: Annotated[str, typer.Option(help="Whose it is; auto finds out.")] = "auto",
    year: Annotated[int, typer.Option(min=1970, max=9998, help="Of its first line, where its clock has none.")] = 2026,
    tz: Annotated[str, typer.Option(help="Time zone of its clock: UTC, +02:00, Europe/Berlin.")] = "UTC",
    rank: Annotated[int, typer.Option(min=0, help="Whose lines to take, where several engines wrote them.")] = 0,
    offset: Annotated[float, typer.Option(min=-1e11, max=1e11, help="Seconds to add to every time.")] = 0.0,
    wrapped: Annotated[bool, typer.Option("--wrapped", help="Join lines that were wrapped by a paste.")] = False,
    json: Json = False,
) -> None:
    """Read a real engine's log, or a load generator's results, into a run folder."""
    from .console import print_json
    from .console_import import print_imported, report_of
    from .traces.importers.catalog import import_file
    from .traces.importers.options import ImportOptions

    folder = out if out is not None else Path("runs") / Path(log.name.removesuffix(".gz")).stem
    imported = import_file(log, folder, engine, ImportOptions(year, tz, rank, offset, wrapped))
    if json:
        print_json(report_of(imported, folder))
    else:
        print_imported(imported, folder)


@app.command()
def export(
    source: Annotated[str, typer.Argument(help="A trace file, an experiment file or a bundled name.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")],
    format: Annotated[str, typer.Option(help="mooncake, aiperf or vllm-bench.")] = "mooncake",
    sets: Sets = [],  # noqa: B006
    input_format: Annotated[str, typer.Option(help="The trace file's own format.")] = "auto",
    json: Json = False,
) -> None:
    """Write a workload for a load generator, so that a simulated experiment can be run against a real server."""
    from .console import print_json
    from .console_export import export_file, print_exported

    exported = export_file(source, format, out, sets, input_format)
    if json:
        told = {"file": str(out), "requests": exported.count, "notes": list(exported.notes)}
        print_json(told | {"replay": exported.command(out)})
    else:
        print_exported(exported, out)


@app.command()
def policies(
    name: Annotated[str | None, typer.Argument(help="List the options of this one (or path/to/file.py:Class).")] = None,
    json: Json = False,
) -> None:
    """What policies there are; with a name, its options and defaults."""
    from .console import print_json
    from .console_catalog import policy_options, policy_rows, print_options, print_rows
    from .policies.find import find_policy

    if name is None:
        rows = policy_rows()
        print_json(rows) if json else print_rows(rows)
        return
    options = policy_options(find_policy(name))
    print_json(options) if json else print_options(name, options)


@app.command()
def workloads(
    source: Annotated[
        str | None, typer.Argument(help="Print the statistics of this trace file, experiment file or bundled name.")
    ] = None,
    sets: Sets = [],  # noqa: B006
    format: Annotated[str, typer.Option(help="The trace file's format.")] = "auto",
    json: Json = False,
) -> None:
    """What workloads there are; with a file, its statistics."""
    from .console import print_json
    from .console_catalog import print_rows, print_statistics, statistics_of, workload_rows
    from .traces.plain import plain

    if source is None:
        rows = workload_rows()
        print_json(rows) if json else print_rows(rows)
        return
    found = statistics_of(source, sets, format)
    print_json(plain(found)) if json else print_statistics(found)


@app.command()
def configs(json: Json = False) -> None:
    """What experiments are bundled."""
    from .console import print_json
    from .console_catalog import config_rows, print_rows

    rows = config_rows()
    print_json(rows) if json else print_rows(rows)


@app.command()
def models(json: Json = False) -> None:
    """What models and hardware are bundled."""
    from .console import print_json
    from .console_catalog import model_rows, print_rows

    rows = model_rows()
    print_json(rows) if json else print_rows(rows)


@app.command()
def conform(
    traces: Annotated[list[Path], typer.Argument(help="Golden traces (.json, .json.gz), or folders of them.")],
    known_differences: Annotated[
        Path | None, typer.Option("--known-differences", help="YAML: trace file -> {step, field, because}.")
    ] = None,
    json: Json = False,
) -> None:
    """Replay golden traces of real engines and compare every field of every step. Exit codes: 0 identical, 1 different,
    2 unreadable."""
    from .conform.check import check, trace_files
    from .conform.known import load_known
    from .console import print_json
    from .console_conform import as_dicts, exit_code, print_checked

    known = {} if known_differences is None else load_known(known_differences)
    checked = [check(path, known) for path in trace_files(traces)]
    print_json(as_dicts(checked)) if json else print_checked(checked)
    raise typer.Exit(exit_code(checked))


app.command()(fit)
app.command()(calibrate)
app.command()(compare)
app.command()(replay)
app.command()(timeline)


def main(arguments: list[str] | None = None) -> None:
    """Run a command and leave with its exit code; an error is one message unless `--debug` is given."""
    given = sys.argv[1:] if arguments is None else arguments
    rest = [argument for argument in given if argument != "--debug"]
    try:
        code = app(rest, prog_name="arcsim", standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except SystemExit as error:  # typer leaves so, with 1, where the reader of a pipe has left
        sys.exit(141 if isinstance(error.__context__, BrokenPipeError) else error.code)
    except Exception as error:
        if _shows_itself(error):
            sys.exit(error.exit_code)  # type: ignore[attr-defined]
        if "--debug" in given:
            raise
        _fail(_told(error), 2)
    sys.exit(code)


def _shows_itself(error: Exception) -> bool:
    """What was typed is wrong: typer's own errors print themselves (their class depends on its version)."""
    show = getattr(error, "show", None)
    if show is None or not hasattr(error, "exit_code"):
        return False
    show()
    return True


def _told(error: Exception) -> str:
    if isinstance(error, (ValueError, OSError)):
        return str(error)
    if isinstance(error, MemoryError):
        return "out of memory; try a smaller workload (workload.limit) or --jobs 1"
    return f"a fault in arcsim: {type(error).__name__}: {error} (--debug shows where)"


def _fail(message: str, code: int) -> None:
    typer.echo(f"error: {message}", err=True)
    sys.exit(code)
