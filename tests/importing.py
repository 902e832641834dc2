"""Logs of a few lines, imported; and lines made up in every format that is read."""

import gzip
from pathlib import Path
from typing import Any, NamedTuple

from arcsim.traces.importers.catalog import LOGS, import_file
from arcsim.traces.importers.clock import Clock
from arcsim.traces.importers.importer import Imported
from arcsim.traces.importers.options import ImportOptions
from arcsim.traces.importers.record import Record
from arcsim.traces.run import Run


class Read(NamedTuple):
    """A run and what was said of its import."""

    run: Run
    report: Imported

    def counts(self) -> list[tuple[int | None, int | None]]:
        """Running and waiting of each sample, in order; events left out."""
        rows = self.run.samples.to_pylist()
        return [(row["running"], row["waiting"]) for row in rows if row["running"] is not None]

    def column(self, name: str) -> list[Any]:
        found: list[Any] = self.run.samples.column(name).to_pylist()
        return found


def read(folder: Path, text: str | bytes, engine: str = "auto", name: str = "some.log", **options: Any) -> Read:
    """Raises what `import_file` raises."""
    path = folder / name
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    report = import_file(path, folder / "run", engine, ImportOptions(**options))
    return Read(Run.load(folder / "run"), report)


def records(engine: str, *lines: str) -> list[Record] | None:
    """What a reader makes of the lines of a log; None where one of them is not this engine's."""
    reader = next(importer for importer in LOGS if importer.name == engine).reader(Clock(2026, "UTC"))
    found: list[Record] = []
    for line in lines:
        told = reader.read(line)
        if told is None:
            return None
        found += told
    return [*found, *reader.end()]


def vllm(running: int, waiting: int, clock: str = "03-04 05:06:07", engine: int = 0, more: str = "") -> str:
    return (
        f"(APIServer pid=77) INFO {clock} [loggers.py:248] Engine {engine:03}: Avg prompt throughput: 812.5 tokens/s, "
        f"Avg generation throughput: 93.2 tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, {more}"
        "GPU KV cache usage: 41.7%, Prefix cache hit rate: 12.5%"
    )


def vllm_v0(running: int, waiting: int, swapped: int = 0, clock: str = "08-09 10:11:12") -> str:
    return (
        f"INFO {clock} metrics.py:455] Avg prompt throughput: 55.0 tokens/s, Avg generation throughput: 61.4 tokens/s, "
        f"Running: {running} reqs, Swapped: {swapped} reqs, Pending: {waiting} reqs, GPU KV cache usage: 63.1%, "
        "CPU KV cache usage: 1.5%."
    )


def iteration(number: int, prefills: int, decodes: int, ms: float, clock: str = "12-30 11:12:13") -> str:
    return (
        f"(EngineCore_DP0 pid=5) INFO {clock} [core.py:355] Iteration({number}): {prefills} context requests, "
        f"{prefills * 100} context tokens, {decodes} generation requests, {decodes} generation tokens, "
        f"iteration elapsed time: {ms:.2f} ms"
    )


def prefill(running: int, waiting: int, clock: str = "2026-02-03 04:05:06", label: str = "") -> str:
    return (
        f"[{clock}{label}] Prefill batch, #new-seq: 2, #new-token: 700, #cached-token: 64, token usage: 0.21, "
        f"#running-req: {running}, #queue-req: {waiting}, cuda graph: False, input throughput (token/s): 901.50"
    )


def decode(running: int, waiting: int, clock: str = "2026-02-03 04:05:08", label: str = "") -> str:
    return (
        f"[{clock}{label}] Decode batch. #running-req: {running}, #token: 9000, token usage: 0.35, "
        f"gen throughput (token/s): 222.75, #queue-req: {waiting}"
    )


def mistralrs(running: int, waiting: int, clock: str = "2026-01-02T03:04:05.678901Z") -> str:
    return (
        f"{clock}  INFO mistralrs_core::engine::logger: Throughput (T/s) 44.20, Prefix cache hitrate 33.33%, "
        f"Encoder cache hitrate 0.00%, {running} running, {waiting} waiting"
    )


def lmdeploy(running: int, waiting: int, outside: int, clock: str = "2026-04-05 06:07:08") -> str:
    return (
        f"[{clock} DP0] Avg thr (in/out): 311.2 / 90.0 tokens/s, Server (succeeded/failed/routed/waiting): "
        f"9 / 1 / {running + waiting} / {outside}, Engine (running/waiting): {running} / {waiting}, KV cache: 8.5%, "
    )


def triton(scheduled: int, active: int, paused: int = 0, clock: str = "0607 08:09:10.123456") -> str:
    return (
        f'I{clock} 33 model_instance_state.cc:901] {{"Active Request Count":{active},"Iteration Counter":41,'
        f'"Max Request Count":64,"Timestamp":"06-07-2025 08:09:10","Context Requests":1,"Generation Requests":'
        f'{scheduled - 1},"MicroBatch ID":0,"Paused Requests":{paused},"Scheduled Requests":{scheduled},'
        '"Total Context Tokens":55,"Free KV cache blocks":30,"Max KV cache blocks":90,"Used KV cache blocks":60}'
    )


def pytorch(scheduled: int, tail: str = "", rank: int = 0) -> str:
    return (
        f"[03/04/2026-05:06:07] [TRT-LLM] [I] iter = 12, global_rank = {rank}, rank = {rank}, currank_total_requests = "
        f"0/0, elapsed_time = 0.0123456789012345678s, timestamp = 2026-03-04 05:06:07, num_scheduled_requests: "
        f"{scheduled}, states = {{'num_ctx_requests': 1, 'num_ctx_tokens': 96, 'num_generation_tokens': 32}}{tail}"
    )


def tgi(clock: str, total: str, validation: str, queue: str) -> str:
    return (
        f'{clock}  INFO generate{{parameters=GenerateParameters {{ best_of: None, max_new_tokens: Some(20) }} '
        f'total_time="{total}" validation_time="{validation}" queue_time="{queue}" inference_time="800ms" '
        'time_per_token="40ms" seed="None"}: text_generation_router::server: router/src/server.rs:421: Success'
    )


def launch(slot: int, clock: str = "0.01.500.000 I ") -> str:
    return f"{clock}slot launch_slot_: id  {slot} | task {slot + 7} | processing task, is_child = 0"


def release(slot: int, clock: str = "0.02.750.000 I ") -> str:
    return f"{clock}slot      release: id  {slot} | task {slot + 7} | stop processing: n_tokens = 96, truncated = 0"
