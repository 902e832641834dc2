"""A simulation beside recorded runs of a real vLLM: fitted on one of them, held against the others it has not seen.

    python bench/fidelity_vllm_cpu.py [--data FOLDER] [--out FILE] [RECORD ...]

`FOLDER` (default: data/vllm_cpu in ARCSIM_DATA) holds the records; further RECORDs of the same machine are simulated,
too. A record `x.json.gz` with an `x_repeat.json.gz` beside it is also compared with that: the same engine doing the
same again is what no simulation can be better than. Everything goes through the command line.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from arcsim.traces.summary_text import number

FITTED = "a_rate2_ample"
OTHERS = ("b_rate1.2_ample", "c_rate3.5_tight")
MODELS = ("table", "affine")
RECORD, REPEAT = ".json.gz", "_repeat.json.gz"
ROWS = (
    ("running.time_mean", "running, mean over steps' time", 1.0, ""),
    ("waiting.time_mean", "waiting, mean over steps' time", 1.0, ""),
    ("throughput", "tokens per second", 1.0, ""), ("makespan", "makespan", 1.0, " s"),
    ("tpot.p50", "TPOT p50", 1e3, " ms"), ("tpot.p90", "TPOT p90", 1e3, " ms"), ("tpot.mean", "TPOT mean", 1e3, " ms"),
    ("ttft.p50", "TTFT p50", 1e3, " ms"), ("ttft.p90", "TTFT p90", 1e3, " ms"), ("ttft.mean", "TTFT mean", 1e3, " ms"),
    ("e2e.p50", "E2E p50", 1e3, " ms"), ("e2e.p90", "E2E p90", 1e3, " ms"), ("preemptions", "preemptions", 1.0, ""),
)
"""Metric, what people call it, factor and unit."""


def main() -> None:
    data = Path(os.environ.get("ARCSIM_DATA", "../shared")) / "data" / "vllm_cpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "fidelity_vllm_cpu.md")
    parser.add_argument("records", nargs="*", type=Path)
    given = parser.parse_args()
    records = [given.data / f"{name}{RECORD}" for name in (FITTED, *OTHERS)] + given.records
    with tempfile.TemporaryDirectory() as folder:
        lines = list(report(records, Path(folder)))
    given.out.write_text("\n".join(lines) + "\n")
    print(f"written to {given.out}")


def report(records: Sequence[Path], folder: Path) -> Iterator[str]:
    yield from HEAD.strip().splitlines()
    names = [imported(record, folder) for record in records]
    yield from decisions(names, folder)
    for model in MODELS:
        arcsim("fit", folder / names[0], "--model", model, "--out", folder / f"{model}.yaml")
    yield from ("", "## What a step costs", "", STEPS.strip(), "")
    yield from costs(names, folder)
    for name in names:
        yield from fidelity(name, folder)


def imported(record: Path, folder: Path) -> str:
    """The record, and its repeat where there is one, as run folders; the name of the first."""
    name = record.name.removesuffix(RECORD)
    arcsim("import", record, "--out", folder / name)
    repeat = record.with_name(f"{name}{REPEAT}")
    if repeat.is_file():
        arcsim("import", repeat, "--out", folder / f"{name}_repeat")
    return name


def decisions(names: Sequence[str], folder: Path) -> Iterator[str]:
    yield from ("", "## Decisions at the recorded times", "", DECISIONS.strip(), "", "| record | steps | decisions |",
                "|---|---|---|")
    for name in sorted(path.name for path in folder.iterdir()):
        found = arcsim("replay", folder / name, fails=(0, 1))
        told = "IDENTICAL" if found["identical"] else f"part at step {found['split']['step']}"
        yield f"| {name} | {metric(found, 'steps')['a']:,.0f} | {told} |"


def costs(names: Sequence[str], folder: Path) -> Iterator[str]:
    """The latency model on the steps of each record, after simulating it."""
    yield "| record | kind of step | steps | median error | p90 error | error of the sum |"
    yield "|---|---|---|---|---|---|"
    for name in names:
        for model in MODELS:
            simulated(name, model, folder)
        for row in compared(name, f"{name}_table", folder)["model_errors"]["b"]:
            parts = (f"{100 * row['median']:.1f} %", f"{100 * row['p90']:.1f} %", f"{100 * row['bias']:+.1f} %")
            yield f"| {name} | {row['name']} | {row['steps']:,} | {' | '.join(parts)} |"


def simulated(name: str, model: str, folder: Path) -> None:
    """The requests of a record, under the limits that its engine had."""
    config = json.loads((folder / name / "run.json").read_text())["config"]
    experiment = {
        "name": f"{name}_{model}", "workload": {"kind": "trace", "format": "run", "path": name},
        "engine": config["engine"], "policy": config["policy"], "latency": f"{model}.yaml",
    }
    path = folder / f"{name}_{model}.yaml"
    path.write_text(yaml.safe_dump(experiment))
    arcsim("simulate", "--config", path, "--out", folder / f"{name}_{model}")


def fidelity(name: str, folder: Path) -> Iterator[str]:
    """Recorded and simulated, and how far the engine is from itself."""
    sides = {model: compared(name, f"{name}_{model}", folder) for model in MODELS}
    again = compared(name, f"{name}_repeat", folder) if (folder / f"{name}_repeat").is_dir() else None
    steps, busy = (metric(sides["table"], key)["a"] for key in ("steps", "busy"))
    seen = "the fit has seen it" if name == FITTED else "the fit has not seen it"
    yield from ("", f"## {name}", "", f"{steps:,.0f} steps, which ran {100 * busy:.1f} % of the time; {seen}.", "")
    yield "| | recorded | simulated | error | the engine against itself | error of an affine fit |"
    yield "|---|---|---|---|---|---|"
    for key, label, factor, unit in ROWS:
        found = metric(sides["table"], key)
        numbers = (f"{number(factor * found[side])}{unit}" for side in "ab")
        every = (sides["table"], again, sides["affine"])
        errors = (percent(metric(each, key)) if each is not None else "" for each in every)
        yield f"| {label} | {' | '.join((*numbers, *errors))} |"
    yield from gauges(sides["table"], again)


def gauges(side: Mapping[str, Any], again: Mapping[str, Any] | None) -> Iterator[str]:
    """Moment by moment."""
    for name in ("running", "waiting"):
        apart = [
            "" if each is None else f"{gauge['mean_absolute']:.3g}"
            for each in (side, again) for gauge in (each or side)["gauges"] if gauge["name"] == name
        ]
        yield f"| {name}, mean absolute difference over time | | | {apart[0]} | {apart[1]} | |"


def percent(found: Mapping[str, Any]) -> str:
    return "" if found["relative"] is None else f"{100 * found['relative']:+.1f} %"


def metric(comparison: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in comparison["metrics"] if each["name"] == name)
    return found


def compared(a: str, b: str, folder: Path) -> dict[str, Any]:
    return arcsim("compare", folder / a, folder / b)


def arcsim(*arguments: str | Path, fails: Sequence[int] = (0,)) -> dict[str, Any]:
    """What a command says with --json. Ends the script where it fails."""
    command = [sys.executable, "-m", "arcsim", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in fails:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


HEAD = """
# Simulated and recorded: vLLM on a CPU core

vLLM 0.32.0 (CPU build) served open workloads on one core: a model of SmolLM-135M's shape, prompts and outputs from the
Azure conversation trace scaled down. Every step and every token's time is recorded. Here a latency table is fitted on
the steps of the first record alone (`arcsim fit --model table`); then each record's requests are simulated with the
policy `vllm` under the engine's own limits, and compared with the record (`arcsim compare`). Nothing of the other
records goes into the fit. Made by `python bench/fidelity_vllm_cpu.py`.

The column "the engine against itself" is the same run done again on the same machine: no simulation is expected to be
nearer than that. Above saturation (steps run all the time) a small difference of step costs becomes a large one of
queueing times.
"""
DECISIONS = """
Each record is decided again by the policy at the record's own step times (`arcsim replay`) and compared in every
scheduling column: tokens, rows, running, waiting, preemptions, KV blocks.
"""
STEPS = """
The fitted table asked for the recorded steps themselves, so that neither decisions nor queueing play a part.
"""

if __name__ == "__main__":
    main()
