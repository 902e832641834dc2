"""Simulation beside measurement on one CPU thread, under open workloads that the calibration has not seen.

    ARCSIM_DATA=... python bench/fidelity_cpu.py            calibrate, measure, simulate, bench/results/fidelity_cpu.md

Every run is an `arcsim` command, printed before it starts. Each workload is measured twice: what the machine differs
from itself by stands beside what the simulation differs from it by. On a machine whose speed changes from minute to
minute, `--interleave` runs the calibration's steps between those of the one measured run (see interleaved.py).
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arcsim.experiment.fit import step_columns
from arcsim.sim.latency.config import load_latency_file
from arcsim.sim.latency.table import TableConfig
from arcsim.sim.measured import measured_steps
from arcsim.sim.table_fit import predict
from arcsim.traces.curve import Curve
from arcsim.traces.quantities import makespan, scalar, tpot, ttft
from arcsim.traces.run import Run

HERE = Path(__file__).parent
CONFIG = HERE / "fidelity_cpu.yaml"
TRACE = Path("data/traces/azure_llm_2023/AzureLLMInferenceTrace_conv.csv")
RATES = (2.0, 8.0)
"""Requests per second: below saturation and above, on the machines that it was written on."""


def mean_gauge(name: str) -> Callable[[Run], float]:
    """Over the time from the first arrival to the last step's end."""
    return lambda run: float(Curve.of(run, name).integral(np.array([run.column("t_end")[-1]]))[0]) / makespan(run)


def busy(run: Run) -> float:
    return float(run.step_seconds().sum()) / makespan(run)


def at(values: Callable[[Run], NDArray[np.float64]], share: float) -> Callable[[Run], float]:
    """A quantile in milliseconds."""
    return lambda run: 1e3 * float(np.quantile(values(run), share))


QUANTITIES: dict[str, Callable[[Run], float]] = {
    "mean running": mean_gauge("running"), "mean waiting": mean_gauge("waiting"),
    "tokens per second": lambda run: scalar(run, "throughput"), "TTFT p50, ms": at(ttft, 0.5),
    "TTFT p90, ms": at(ttft, 0.9), "TPOT p50, ms": at(tpot, 0.5), "TPOT p90, ms": at(tpot, 0.9),
}


CALIBRATED = {
    False: "`arcsim calibrate`, run just before",
    True: "the designed steps of `arcsim calibrate`, run between the steps of the measured run and off its clock, so "
          "that both met the same busy machine",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """`limit`: requests of each workload. `model`: as `arcsim run-gpu` takes it. `clock`: wall or cpu."""

    folder: Path
    trace: Path
    model: str
    limit: int
    clock: str
    latency: Path | None
    measured: bool
    interleave: bool
    rates: tuple[float, ...] = RATES


def arcsim(*arguments: object) -> None:
    """Run a command of arcsim; raises CalledProcessError."""
    words = [str(argument) for argument in arguments]
    print("arcsim", *words, flush=True)
    subprocess.run([sys.executable, "-m", "arcsim", *words], check=True)


def calibrated(settings: Settings) -> Path:
    """The latency file."""
    path = settings.latency or settings.folder / "latency.yaml"
    if settings.latency is None and (settings.measured or not path.exists()):
        arcsim("calibrate", "--model", settings.model, *on_cpu(settings), "--block-size", 32, "--rows", 16, "--tokens",
               256, "--context", 640, "--out", path)
    return path


def on_cpu(settings: Settings) -> tuple[object, ...]:
    return "--device", "cpu", "--threads", 1, "--clock", settings.clock


def sets_of(settings: Settings, rate: float) -> list[str]:
    return [f"workload.path={settings.trace}", f"workload.limit={settings.limit}",
            f"workload.arrivals={{poisson: {rate}}}"]


def runs(settings: Settings, rate: float, latency: Path) -> dict[str, Run]:
    """Two measured runs and a simulated one of the workload at that rate."""
    common = ["-c", CONFIG, "--quiet", *(word for each in sets_of(settings, rate) for word in ("--set", each))]
    place = {arm: settings.folder / f"{arm}_{rate:g}" for arm in ("measured", "again", "simulated")}
    for arm in ("measured", "again"):
        if settings.measured or not place[arm].exists():
            arcsim("run-gpu", *common, "--model", settings.model, *on_cpu(settings), "-o", place[arm])
    arcsim("simulate", *common, "--set", f"latency={latency}", "-o", place["simulated"])
    return {arm: Run.load(folder) for arm, folder in place.items()}


def interleaved(settings: Settings, rate: float) -> tuple[dict[str, Run], Path]:
    """As `runs`, with one measured run, and the latency file of the designed steps that ran in between."""
    from interleaved import Limits, interleaved_run  # type: ignore[import-not-found]  # beside this file; needs torch

    sets = sets_of(settings, rate)
    folder = settings.folder / f"interleaved_{rate:g}"
    latency = folder / "latency.yaml"
    if settings.measured or not latency.exists():
        interleaved_run(CONFIG, [*sets, f"model={settings.model}"], folder, clock=settings.clock,
                        limits=Limits(16, 256, 640), every=2 if rate < 4 else 1)
    words = [word for each in sets for word in ("--set", each)]
    arcsim("simulate", "-c", CONFIG, "--quiet", *words, "--set", f"latency={latency}", "-o", folder / "simulated")
    return {arm: Run.load(folder / arm) for arm in ("measured", "simulated")}, latency


def lines(rate: float, found: dict[str, Run], latency: Path) -> Iterator[str]:
    """The table of one workload."""
    measured, simulated, again = found["measured"], found["simulated"], found.get("again")
    itself = "" if again is None else " the machine against itself |"
    yield f"## {rate:g} requests per second, {busy(measured):.0%} busy"
    yield ""
    yield f"| | measured | simulated | error |{itself}"
    yield "|---|---|---|---|" + ("" if again is None else "---|")
    for name, value in QUANTITIES.items():
        a, b = value(measured), value(simulated)
        other = "" if again is None else f" {relative(value(again), a)} |"
        yield f"| {name} | {a:.4g} | {b:.4g} | {relative(b, a)} |{other}"
    yield ""
    yield step_line(measured, latency)
    yield ""


def relative(found: float, wanted: float) -> str:
    return f"{100 * (found / wanted - 1):+.1f} %" if wanted > 0.05 else f"{found - wanted:+.3f}"


def step_line(measured: Run, latency: Path) -> str:
    """What the model says of the measured run's own steps: its error before any queueing."""
    config = load_latency_file(latency)
    assert isinstance(config, TableConfig)
    steps = measured_steps([step_columns(measured)])
    said = predict(config, steps)
    off = said.sum() / steps.seconds.sum() - 1
    each = np.median(np.abs(said / steps.seconds - 1))
    return (f"The {len(steps):,} steps of the measured run, one by one: the model is {100 * off:+.1f} % off in their "
            f"sum, {100 * each:.1f} % off in the middle step.")


def report(settings: Settings) -> Iterator[str]:
    latency = Path() if settings.interleave else calibrated(settings)
    tables: list[str] = []
    for rate in settings.rates:
        if settings.interleave:
            found, latency = interleaved(settings, rate)
        else:
            found = runs(settings, rate, latency)
        tables += lines(rate, found, latency)
    yield "# Simulation beside measurement on a CPU"
    yield ""
    yield introduction(settings, found["measured"].meta["measured"])
    yield ""
    yield from tables


def introduction(settings: Settings, ran: dict[str, Any]) -> str:
    clock = "" if settings.clock == "cpu" else f" --clock {settings.clock}"
    clock += " --interleave" if settings.interleave else ""
    load = f"; load average {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores"
    counted = "CPU seconds of the thread" if settings.clock == "cpu" else "wall time"
    return (
        f"`python bench/fidelity_cpu.py{clock}`: {ran['model']} ({ran['dtype']}, random weights) on one thread of "
        f"{ran['device_name']}, torch {ran['torch']}, attention {ran['attention']}; {counted}"
        f"{load if settings.measured else ''}. {settings.limit} requests with lengths of the Azure "
        "conversation trace, an eighth of each, Poisson arrivals; policy `vllm`, synchronous, 16 sequences, 256 tokens "
        f"a step. The latency table is that of {CALIBRATED[settings.interleave]}, which saw none of these workloads."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the report and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/fidelity_cpu"), help="for the runs")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "fidelity_cpu.md")
    parser.add_argument("--trace", type=Path, default=Path(os.environ.get("ARCSIM_DATA", ".")) / TRACE)
    parser.add_argument("--model", default="smollm-135m")
    parser.add_argument("--limit", type=int, default=200, help="requests of each workload")
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu")
    parser.add_argument("--latency", type=Path, help="a latency file instead of calibrating")
    parser.add_argument("--keep", action="store_true", help="do not measure again what the folder holds")
    parser.add_argument("--interleave", action="store_true", help="calibrate between the steps of the measured run")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="requests per second")
    given = parser.parse_args(arguments)
    settings = Settings(given.folder, given.trace.resolve(), given.model, given.limit, given.clock, given.latency,
                        not given.keep, given.interleave, tuple(given.rates))
    text = "\n".join(report(settings)).rstrip() + "\n"
    print(text)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
