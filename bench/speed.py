"""CPU time and memory of whole `arcsim simulate` commands on the two request lists other simulators were timed on."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("ARCSIM_DATA", HERE.parent.parent / "shared")) / "data" / "bench"
LISTS = ("W1", "W2")
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """One command: CPU seconds (user and system, of all its processes), peak memory in bytes, what it simulated."""

    cpu: float
    memory: float
    steps: int
    decode_tokens: int


def main() -> None:
    if not DATA.is_dir():
        print(f"no request lists in {DATA}: set ARCSIM_DATA to the folder that holds data/bench")
        return
    print("| requests | steps | CPU-seconds (median of 3) | peak memory | decode tokens per CPU-second |")
    print("|---|---|---|---|---|")
    for name in LISTS:
        print(_row(name, [_time(DATA / f"workload_{name}_10000.csv") for _ in range(REPEATS)]), flush=True)


def _row(name: str, timings: list[Timing]) -> str:
    cpu = median(timing.cpu for timing in timings)
    memory = max(timing.memory for timing in timings)
    rate = timings[0].decode_tokens / cpu
    return f"| {name} | {timings[0].steps:,} | {cpu:.2f} | {memory / 2**20:,.0f} MiB | {rate:,.0f} |"


def _time(requests: Path) -> Timing:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "arcsim", "simulate", "--config", str(HERE / "speed.yaml"), "--json", "--out",
            f"{folder}/run", "--set", f"workload.path={requests}",
        ]
        with open(f"{folder}/answer", "wb") as answer:
            process = subprocess.Popen(command, stdout=answer, cwd=folder)
            _, status, usage = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"{' '.join(command)} failed")
        summary = json.loads(Path(folder, "answer").read_text())["cells"][0]["variants"]["continuous"]
    return Timing(
        usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, summary["steps"], summary["generated_tokens"]
    )


if __name__ == "__main__":
    main()
