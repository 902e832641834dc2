"""configs/ab_cpu.yaml on both arms of this machine: do they decide alike, and does the simulated speedup hold?

    python bench/ab_cpu.py            calibrate, measure, simulate, bench/results/ab_cpu.md

Every run is an `arcsim` command, printed before it starts. The calibration sees steps of its own, not this experiment.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from arcsim.traces.decisions import equal_steps
from arcsim.traces.quantities import scalar
from arcsim.traces.run import Run

HERE = Path(__file__).parent
BASE = "bucketed"
LIMITS = ("--rows", 32, "--tokens", 3072, "--context", 192, "--block-size", 32)
"""What the experiment reaches: 32 prompts of 156 tokens at most in one pass, sequences of 168."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One variant in one cell, on both arms; `measured` once in each round."""

    cell: str
    variant: str
    measured: Sequence[Run]
    simulated: Run

    @property
    def identical(self) -> bool:
        return all(equal_steps(each, self.simulated) for each in self.measured)

    @property
    def rates(self) -> tuple[float, float]:
        """Tokens per second, measured (median of the rounds) and simulated."""
        return median(scalar(each, "throughput") for each in self.measured), scalar(self.simulated, "throughput")


def arcsim(*arguments: object) -> None:
    """Run a command of arcsim. Raises CalledProcessError, but not where a prediction was refuted (exit code 1)."""
    words = [str(argument) for argument in arguments]
    print("arcsim", *words, flush=True)
    done = subprocess.run([sys.executable, "-m", "arcsim", *words], check=False)
    if done.returncode not in (0, 1):
        done.check_returncode()


def pairs(folder: Path, model: str, clock: str, rounds: int) -> list[Pair]:
    """Everything is run anew but what the folder holds already."""
    latency, simulated = folder / "latency.yaml", folder / "simulated"
    measured = [folder / f"measured_{number}" for number in range(1, rounds + 1)]
    on_cpu = ("--device", "cpu", "--threads", 1, "--clock", clock)
    common = ("-c", "ab_cpu", "--quiet")
    if not latency.exists():
        arcsim("calibrate", "--model", model, *on_cpu, *LIMITS, "--out", latency)
    for round_ in measured:
        if not round_.exists():
            arcsim("run-gpu", *common, "--model", model, *on_cpu, "-o", round_)
    arcsim("simulate", *common, "--set", f"latency={latency}", "-o", simulated)
    places = sorted(path.parent.relative_to(simulated) for path in simulated.rglob("run.json"))
    return [
        Pair(str(place.parent), place.name, [Run.load(each / place) for each in measured], Run.load(simulated / place))
        for place in places
    ]


def table(found: Sequence[Pair]) -> Iterator[str]:
    base = {pair.cell: pair.rates for pair in found if pair.variant == BASE}
    yield ("| cell | variant | steps | forward width | tokens/s measured | simulated | speedup measured | "
           "simulated | error |")
    yield "|---|---|---|---|---|---|---|---|---|"
    for pair in found:
        speedups = [rate / of for rate, of in zip(pair.rates, base[pair.cell], strict=True)]
        width = pair.measured[0].column("forward_width").mean()
        yield (
            f"| {pair.cell} | {pair.variant} | {'identical' if pair.identical else 'DIFFERENT'} | {width:.2f} | "
            f"{pair.rates[0]:.1f} | {pair.rates[1]:.1f} | {speedups[0]:.2f} | {speedups[1]:.2f} | "
            f"{100 * (speedups[1] / speedups[0] - 1):+.1f} % |"
        )


def introduction(ran: dict[str, Any], clock: str, rounds: int) -> str:
    counted = f"{'CPU seconds of the thread' if clock == 'cpu' else 'wall time'}, median of {rounds} rounds"
    return (
        f"`python bench/ab_cpu.py{'' if clock == 'cpu' else ' --clock ' + clock}`: {ran['model']} ({ran['dtype']}, "
        f"random weights) on one thread of {ran['device_name']}, torch {ran['torch']}, attention {ran['attention']}; "
        f"{counted}; load average {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores. `steps`: whether the step "
        f"tables of the two arms agree in every scheduling column. `speedup`: over `{BASE}` in the same cell. The "
        "latency table is that of `arcsim calibrate`, which saw steps of its own and not this experiment."
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("runs/ab_cpu"), help="for the runs; what it holds is kept")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "ab_cpu.md")
    parser.add_argument("--model", default="smollm-135m")
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu")
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured")
    given = parser.parse_args(arguments)
    found = pairs(given.folder, given.model, given.clock, given.rounds)
    ran = found[0].measured[0].meta["measured"]
    lines = ["# The ragged-decode A/B on a CPU", "", introduction(ran, given.clock, given.rounds), "", *table(found)]
    text = "\n".join(lines) + "\n"
    print(text)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
