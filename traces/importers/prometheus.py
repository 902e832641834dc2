"""Prometheus snapshots of vLLM, SGLang, TGI and llama.cpp, one after another in a file."""

import re
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

from .clock import Clock
from .record import Record

METRICS = {
    "vllm:num_requests_running": "running", "vllm:num_requests_waiting": "waiting",
    "vllm:num_requests_swapped": "swapped", "vllm:num_preemptions_total": "preemptions",
    "vllm:kv_cache_usage_perc": "kv_usage", "vllm:gpu_cache_usage_perc": "kv_usage",
    "sglang:num_running_reqs": "running", "sglang:num_queue_reqs": "waiting", "sglang:token_usage": "kv_usage",
    "sglang:cache_hit_rate": "hit_rate", "sglang:gen_throughput": "generation_throughput",
    "tgi_batch_current_size": "running", "tgi_queue_size": "waiting",
    "llamacpp:requests_processing": "running", "llamacpp:requests_deferred": "waiting",
}
BY_REASON = "vllm:num_requests_waiting_by_reason"
WHOLE = ("running", "waiting", "swapped", "preemptions", "deferred")
PREFIXES = ("vllm:", "sglang:", "tgi_", "llamacpp:")
LINE = re.compile(r"^\s*([a-zA-Z_:][\w:]*)(?:\{([^}]*)\})?\s+(\S+)(?:\s+(\d{9,16}))?\s*$", re.ASCII)
LABEL = re.compile(r"(\w+)=\"((?:[^\"\\]|\\.)*)\"", re.ASCII)
MOMENT = re.compile(
    r"^#\s*(\d{9,11}(?:\.\d{1,9})?"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)\s*$", re.ASCII,
)
ENGINES = ("engine", "dp_rank")
MEMBERS = ("tp_rank", "pp_rank", "moe_ep_rank", "model_name", "engine_type", "priority")


class PrometheusReader:
    """A snapshot ends where a gauge comes again, or at a comment with the time of the next one (seconds since 1970,
    or a date). Without such comments, and without time stamps behind the values, samples have no time."""

    def __init__(self, clock: Clock) -> None:
        self._gauges: dict[tuple[int, str], dict[str, float]] = {}
        self._moment: str | None = None

    def read(self, line: str) -> Sequence[Record] | None:
        if line.startswith("#"):
            return self._comment(line)
        match = LINE.match(line) if line.lstrip().startswith(PREFIXES) else None
        if match is None:
            return None
        labels = dict(LABEL.findall(match[2] or ""))
        name = METRICS.get(match[1]) or ("deferred" if _is_deferred(match[1], labels) else None)
        return None if name is None else self._gauge(name, labels, match)

    def end(self) -> Iterable[Record]:
        return self._snapshot()

    def _comment(self, line: str) -> Sequence[Record] | None:
        match = MOMENT.match(line)
        if match is None:
            return None
        done = self._snapshot()
        self._moment = match[1]
        return done

    def _gauge(self, name: str, labels: dict[str, str], match: re.Match[str]) -> Sequence[Record]:
        try:
            value = float(match[3])
        except ValueError:
            return ()
        if not isfinite(value) or value < 0 or name in WHOLE and value >= 2**31:
            return ()
        engine = next((labels[key] for key in ENGINES if key in labels), "0")
        key = (int(engine) if engine.isdecimal() and len(engine) < 9 else 0, _member(labels))
        done = self._snapshot() if name in self._gauges.get(key, ()) else ()
        if match[4]:
            self._moment = f"{int(match[4]) / 1e3:.3f}" if len(match[4]) > 11 else match[4]
        self._gauges.setdefault(key, {})[name] = value
        return done

    def _snapshot(self) -> Sequence[Record]:
        found = [
            _record(self._moment, rank, member, values) for (rank, member), values in sorted(self._gauges.items())
            if "running" in values
        ]
        self._gauges, self._moment = {}, None
        return found


def _is_deferred(metric: str, labels: dict[str, str]) -> bool:
    return metric == BY_REASON and labels.get("reason") == "deferred"


def _member(labels: dict[str, str]) -> str:
    return " ".join(f"{key}={labels[key]}" for key in MEMBERS if key in labels)


def _record(moment: str | None, rank: int, member: str, values: dict[str, float]) -> Record:
    told: dict[str, Any] = {name: int(value) if name in WHOLE else value for name, value in values.items()}
    running, waiting = told.pop("running"), told.pop("waiting", None)
    return Record("interval", moment, running, waiting, rank=rank, member=member, **told)
