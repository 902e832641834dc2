"""How fast a log is imported and in how much memory: a large one beside one a tenth as long.

    python bench/import_log.py [--gigabytes 1] [--engine vllm]

Every other line is one that the engine prints in between. Writes the logs into a temporary folder, imports each in a
process of its own and prints lines, samples, seconds, MB/s and the peak of its resident memory.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

START = datetime(2026, 1, 1)
CHUNK = 20_000
BETWEEN = '(APIServer pid=7) INFO:     10.0.0.1:4000 - "POST /v1/completions HTTP/1.1" 200 OK\n'


def vllm(number: int) -> str:
    moment = START + timedelta(seconds=number % 3_000_000)
    return (
        f"(APIServer pid=7) INFO {moment:%m-%d %H:%M:%S} [loggers.py:257] Engine 000: Avg prompt throughput: 81.5 "
        f"tokens/s, Avg generation throughput: 93.2 tokens/s, Running: {number % 256} reqs, Waiting: {number % 89} "
        "reqs, GPU KV cache usage: 41.7%, Prefix cache hit rate: 12.5%\n" + BETWEEN
    )


def sglang(number: int) -> str:
    moment = START + timedelta(seconds=number)
    return (
        f"[{moment:%Y-%m-%d %H:%M:%S} TP0] Prefill batch, #new-seq: 1, #new-token: 148, #cached-token: 0, token usage: "
        f"0.08, #running-req: {number % 256}, #queue-req: {number % 89}, input throughput (token/s): 20.38\n" + BETWEEN
    )


def iteration(number: int) -> str:
    moment = START + timedelta(seconds=number // 100)
    return (
        f"(EngineCore_DP0 pid=5) INFO {moment:%m-%d %H:%M:%S} [core.py:355] Iteration({number}): 0 context requests, "
        f"0 context tokens, {number % 256} generation requests, {number % 256} generation tokens, iteration elapsed "
        "time: 9.75 ms\n" + BETWEEN
    )


ENGINES = {"vllm": vllm, "sglang": sglang, "iterations": iteration}


def chunks(engine: str, size: float) -> Iterator[str]:
    written = first = 0
    while written < size:
        text = "".join(map(ENGINES[engine], range(first, first + CHUNK)))
        first, written = first + CHUNK, written + len(text)
        yield text


def measured(log: Path) -> None:
    """In a process of its own: what the import took."""
    from arcsim.traces.importers.catalog import import_file

    began, busy = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        report = import_file(log, Path(folder) / "run")
    seconds, busy, size = time.perf_counter() - began, time.process_time() - busy, log.stat().st_size / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{size:,.0f} MB, {report.lines:,} lines, {report.samples:,} samples, {report.steps:,} steps: "
          f"{busy:.1f} CPU-s ({seconds:.1f} s), {size / busy:.0f} MB per CPU-s, peak {peak:.0f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--engine", choices=ENGINES, default="vllm")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        measured(given.measure)
        return
    with tempfile.TemporaryDirectory() as folder:
        for share in (0.1, 1.0):
            log = Path(folder) / "engine.log"
            with log.open("w") as file:
                file.writelines(chunks(given.engine, share * given.gigabytes * 1e9))
            subprocess.run([sys.executable, __file__, "--measure", str(log)], check=True)


if __name__ == "__main__":
    main()
