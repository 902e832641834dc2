"""Records of a real vLLM, which note every step and every token's time, as runs."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from ..rows import run_from_rows
from ..run import Run
from .errors import ImportFault
from .importer import FileImporter
from .options import ImportOptions
from .source import Head, whole_text

ENGINE_KEYS = ("block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len")
OPTIONS = ("async_scheduling", "enable_prefix_caching")
STEP_KEYS = frozenset({"t_start", "t_end", "running", "waiting", "preempted", "scheduled"})
REQUEST_KEYS = frozenset({"id", "arrival", "added", "prompt", "output", "token_times"})
BEGINNING = re.compile(r'\s*\{.*"engine":\s*"vllm".*"device":', re.DOTALL)
HEAD_CHARACTERS = 1_000


def recognises(head: Head) -> bool:
    return BEGINNING.match(head.text[:HEAD_CHARACTERS]) is not None


def read(path: Path, options: ImportOptions) -> Run:
    """The run of a record (JSON). Its clock starts with it; `options.offset` is added to every time."""
    try:
        record = json.loads(whole_text(path))
    except (ValueError, RecursionError) as error:
        raise ImportFault(f"{path}: not JSON: {error}") from error
    return run_of_record(record, path, options.offset)


def run_of_record(record: Any, path: Path, offset: float = 0.0) -> Run:
    """The step and request tables of a record.

    What the record does not state follows from what it does: a row of one token past the prompt decodes, a row that
    reaches a sequence's last known token samples, and a sequence that holds n tokens' KV holds ceil(n / block size)
    blocks. Arrivals are those planned by the client; a request counts as arrived before the first step that starts
    after it was added. Raises ImportFault.
    """
    _check(record, path)
    with _named(path, lambda: "requests"):
        reader = _Reader(record, offset)
    with _named(path, lambda: f"steps[{reader.number}]"):
        steps = [reader.step(step) for step in record["steps"]]
    with _named(path, lambda: "requests"):
        requests = [_request(request, reader) for request in record["requests"]]
    return run_from_rows(steps, requests, _meta(record, path))


@contextmanager
def _named(path: Path, place: Callable[[], str]) -> Iterator[None]:
    """What is wrong in it is an ImportFault that says where."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        reason = f"{type(error).__name__} {error}"
        raise ImportFault(f"{path}: {place()}: not as in a vLLM record: {reason}") from error


def _check(record: Any, path: Path) -> None:
    if not isinstance(record, dict) or record.get("engine") != "vllm" or "device" not in record:
        raise ImportFault(f"{path}: not a record of a vLLM: one has engine, device, config, requests and steps")
    for key, needed in (("requests", REQUEST_KEYS), ("steps", STEP_KEYS)):
        rows = record.get(key)
        if not isinstance(rows, list) or not rows:
            raise ImportFault(f"{path}: {key}: a list of at least one is needed, found {rows!r:.80}")
        for number, row in enumerate(rows):
            missing = needed - row.keys() if isinstance(row, dict) else needed
            if missing:
                raise ImportFault(f"{path}: {key}[{number}] has no {', '.join(sorted(missing))}")
    config = record["config"] if isinstance(record.get("config"), dict) else {}
    absent = [key for key in (*ENGINE_KEYS, "num_gpu_blocks") if type(config.get(key)) is not int or config[key] < 1]
    if absent:
        raise ImportFault(f"{path}: config has no {', '.join(absent)} (a number from 1 up)")
    if config.get("async_scheduling"):
        raise ImportFault(f"{path}: config.async_scheduling is on: steps that overlap are not read from records")


@dataclass(slots=True)
class _Served:
    """One request on its way through the steps, in tokens; `held`: those whose KV it holds, `peak`: had at most."""

    request: Mapping[str, Any]
    generated: int = 0
    held: int = 0
    peak: int = 0
    cached: int = 0
    recomputed: int = 0
    preemptions: int = 0
    first_scheduled: float = float("nan")

    @property
    def known(self) -> int:
        return int(self.request["prompt"]) + self.generated

    @property
    def done(self) -> bool:
        return self.generated >= int(self.request["output"])


class _Reader:
    """Follows the requests of a record from step to step. `number`: the step it is at. `_used`: blocks held."""

    def __init__(self, record: Mapping[str, Any], offset: float) -> None:
        self.number = 0
        self.offset = offset
        self.served = {request["id"]: _Served(request) for request in record["requests"]}
        self._block = int(record["config"]["block_size"])
        self._usable = int(record["config"]["num_gpu_blocks"]) - 1  # one is the null block
        self._used = 0
        self._to_come = sorted(float(request["added"]) for request in record["requests"])
        self._arrived = 0

    def step(self, step: Mapping[str, Any]) -> dict[str, Any]:
        """A row of the step table."""
        start, end = float(step["t_start"]), float(step["t_end"])
        host = float(step.get("schedule_s", 0.0))
        row = dict.fromkeys(SUMS, 0) | {
            "t_start": start + self.offset, "t_end": end + self.offset,
            "host_seconds": host, "device_seconds": end - start - host,
            "running": int(step["running"]), "waiting": int(step["waiting"]), "waiting_end": int(step["waiting"]),
            "forward_width": len(step["scheduled"]), "preempted": len(step["preempted"]), "kv_total": self._usable,
            "arrived": self._arrivals(start),
        }
        for id in step["preempted"]:
            self._drop(self.served[_plain(id)])
        rows = [(self.served[_plain(id)], *tokens) for id, tokens in step["scheduled"].items()]
        for served, length, begin in rows:
            self._run(served, length, begin, row)
        row["kv_used"] = self._used
        row["finished"] = sum(self._sample(served) for served, _, _ in rows)
        row |= {"padded_tokens": row["prefill_tokens"], "logged_tokens": row["sampled_tokens"]}
        row |= {"kv_used_end": self._used, "running_end": row["running"] - row["finished"]}
        for served, _, _ in rows:
            if isnan(served.first_scheduled):
                served.first_scheduled = start + self.offset
        self.number += 1
        return row

    def _arrivals(self, start: float) -> int:
        before = self._arrived
        while self._arrived < len(self._to_come) and self._to_come[self._arrived] <= start:
            self._arrived += 1
        return self._arrived - before

    def _hold(self, served: _Served, tokens: int) -> None:
        """Its blocks are counted with it."""
        self._used += -(-tokens // self._block) - -(-served.held // self._block)
        served.held = tokens

    def _drop(self, served: _Served) -> None:
        self._hold(served, 0)
        served.preemptions += 1

    def _run(self, served: _Served, length: int, start: int, row: dict[str, Any]) -> None:
        if not served.held:
            kind = "resumed" if served.peak else "admitted"
            row[kind] += 1
            row["cached_tokens"] += start
            served.cached = served.cached if served.peak else start
        end, decode = start + length, served.generated > 0 and length == 1 and start + 1 == served.known
        row["context_tokens"] += end
        row["attended_tokens"] += 0 if decode else length * start + length * (length + 1) // 2
        row["sampled_tokens"] += end == served.known
        row["decode_seqs" if decode else "prefill_seqs"] += 1
        if decode:
            row["decode_tokens"] += 1
        else:
            self._prefill(served, start, end, row)
        self._hold(served, end)
        served.peak = max(served.peak, end)

    def _prefill(self, served: _Served, start: int, end: int, row: dict[str, Any]) -> None:
        again = max(0, min(end, served.peak) - start)
        row["prefill_tokens"] += end - start
        row["recomputed_tokens"] += again
        row["reprefill_tokens"] += max(0, min(end, served.peak + (served.generated > 0)) - start)
        served.recomputed += again

    def _sample(self, served: _Served) -> bool:
        """Whether that was its last token."""
        if served.held < served.known:
            return False
        served.generated += 1
        if served.done:
            self._hold(served, 0)
        return served.done


SUMS = (
    "prefill_seqs", "decode_seqs", "prefill_tokens", "decode_tokens", "cached_tokens", "recomputed_tokens",
    "reprefill_tokens", "context_tokens", "attended_tokens", "sampled_tokens", "admitted", "resumed",
)
"""Columns that add up over the rows of a step."""


def _request(request: Mapping[str, Any], reader: _Reader) -> dict[str, Any]:
    served, offset = reader.served[request["id"]], reader.offset
    times = [offset + float(time) for time in request["token_times"]]
    whole = len(times) >= int(request["output"])
    row = {
        "id": request["id"], "arrival": float(request["arrival"]) + offset, "first_scheduled": served.first_scheduled,
        "prompt_tokens": request["prompt"], "output_tokens": len(times), "cached_tokens": served.cached,
        "recomputed_tokens": served.recomputed, "preemptions": served.preemptions, "token_times": times,
        "status": "finished" if whole else "unfinished",
    }
    return row | ({"first_token": times[0]} if times else {}) | ({"finish": times[-1]} if whole and times else {})


def _meta(record: Mapping[str, Any], path: Path) -> dict[str, Any]:
    config = record["config"]
    engine = {key: config[key] for key in ENGINE_KEYS} | {"num_blocks": config["num_gpu_blocks"]}
    policy = {"name": "vllm"} | {key: config[key] for key in OPTIONS if key in config}
    return {
        "engine": "vllm", "policy": "vllm", "outcome": "completed", "log_style": "vllm",
        "config": {"model": record.get("model"), "engine": engine, "policy": policy},
        "versions": {"vllm": record.get("version")}, "machine": {"device": record.get("device")},
        "notes": [f"a record of vLLM {record.get('version')} on {record.get('device')}"],
    }


def _plain(id: str) -> str:
    """The engine appends a dash and a suffix of its own."""
    return id.rpartition("-")[0]


RECORD = FileImporter(
    "vllm-record", "a record of a real vLLM: every step and every token's time (JSON)", recognises, read,
)
