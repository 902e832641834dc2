"""AIPerf's record of each request, profile_export.jsonl."""

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

from ..run import Run
from .errors import ImportFault
from .importer import FileImporter
from .options import ImportOptions
from .results import Row, first_line, number, request_run, tokens
from .source import Head, whole_text

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}


def _recognises(head: Head) -> bool:
    first = head.text.lstrip()[:16384]
    return first.startswith("{") and '"metadata"' in first and '"request_start_ns"' in first


def _read(path: Path, options: ImportOptions) -> Run:
    records = _records(path)
    told = sorted((record for record in records if _phase(record) == "profiling"), key=_start)
    first, warm_up = _start(told[0]) if told else 0, len(records) - len(told)
    notes = [f"{warm_up} requests of the warm-up were left out"] if warm_up else []
    return request_run(path, "aiperf", [_row(record, _start(record) - first) for record in told], notes, {})


def _records(path: Path) -> list[dict[str, Any]]:
    lines = enumerate(whole_text(path).split("\n"), 1)  # not splitlines: a text in it may hold other line ends
    return [_object(path, place, line) for place, line in lines if line.strip()]


def _start(record: dict[str, Any]) -> int:
    return int(record["metadata"]["request_start_ns"])


def _phase(record: dict[str, Any]) -> str:
    return str(record["metadata"].get("benchmark_phase", "profiling"))


def _object(path: Path, place: int, line: str) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ImportFault(f"{path}:{place}: not readable as JSON ({error}): is the file whole?") from error
    metadata = told.get("metadata") if isinstance(told, dict) else None
    if not isinstance(metadata, dict) or type(metadata.get("request_start_ns")) is not int:
        raise ImportFault(f"{path}:{place}: no metadata.request_start_ns: not a record of profile_export.jsonl")
    return dict(told)


def _row(told: dict[str, Any], since_first_ns: int) -> Row:
    """`since_first_ns` in whole nanoseconds first: seconds since 1970 would lose some."""
    metrics = told.get("metrics")
    metrics = metrics if isinstance(metrics, dict) else {}
    arrival = since_first_ns / 1e9
    row: Row = {
        "arrival": arrival, "prompt_tokens": tokens(_value(metrics, "input_sequence_length")),
        "output_tokens": tokens(_value(metrics, "output_sequence_length")),
    }
    if told["metadata"].get("was_cancelled"):
        return row | {"status": "aborted", "reason": "cancelled"}
    if told.get("error"):
        return row | {"status": "aborted", "reason": first_line(_message(told["error"]))}
    first = arrival + _seconds(metrics, "time_to_first_token")
    return row | {
        "first_token": first, "finish": arrival + _seconds(metrics, "request_latency"),
        "token_times": _token_times(metrics, first, row["output_tokens"]),
    }


def _token_times(metrics: dict[str, Any], first: float, output: int) -> list[float]:
    """Only where the answer came token by token; AIPerf times its pieces."""
    gaps = _value(metrics, "inter_chunk_latency")
    if not isinstance(gaps, list) or len(gaps) + 1 != output:
        return []
    unit = _unit(metrics, "inter_chunk_latency")
    return list(accumulate((number(gap) * unit for gap in gaps), initial=first))


def _value(metrics: dict[str, Any], name: str) -> Any:
    told = metrics.get(name)
    return told.get("value") if isinstance(told, dict) else told


def _unit(metrics: dict[str, Any], name: str) -> float:
    told = metrics.get(name)
    return UNITS.get(str(told.get("unit")), 1e-3) if isinstance(told, dict) else 1e-3


def _seconds(metrics: dict[str, Any], name: str) -> float:
    return number(_value(metrics, name)) * _unit(metrics, name)


def _message(error: Any) -> Any:
    return error.get("message") or error.get("type") if isinstance(error, dict) else error


AIPERF = FileImporter("aiperf", "AIPerf's profile_export.jsonl", _recognises, _read)
