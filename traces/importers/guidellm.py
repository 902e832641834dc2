"""GuideLLM's benchmarks in JSON, as versions 0.2 to 0.6 write them."""

from collections.abc import Iterator, Mapping
from math import isnan, nan
from pathlib import Path
from typing import Any

from ..run import Run
from .errors import ImportFault
from .importer import FileImporter
from .options import ImportOptions
from .results import Row, chosen, documents, number, request_run, tokens
from .source import Head

STATUS = {"successful": "finished", "incomplete": "unfinished", "errored": "aborted"}


def _recognises(head: Head) -> bool:
    text = head.text.lstrip()
    return text.startswith("{") and ('"benchmarks"' in text[:4096] or '"guidellm' in text[:4096])


def _read(path: Path, options: ImportOptions) -> Run:
    report = next(documents(path), None)
    found = report.get("benchmarks") if isinstance(report, dict) else None
    if not isinstance(found, list):
        raise ImportFault(f"{path}: no list of `benchmarks` in it")
    benchmark, notes = chosen(path, found, options.rank, "benchmark")
    rows = sorted(_rows(benchmark), key=lambda row: row["arrival"])
    if any(row["output_tokens"] > 2 for row in rows):
        notes.append("single token times are not in the file: ITL is not known, TPOT is")
    return request_run(path, "guidellm", rows, notes, {})


def _rows(benchmark: Any) -> Iterator[Row]:
    requests = benchmark.get("requests") if isinstance(benchmark, dict) else None
    for group, status in STATUS.items():
        members = requests.get(group) if isinstance(requests, dict) else None
        for each in members if isinstance(members, list) else ():
            row = _row(each, status) if isinstance(each, dict) else None
            if row is not None:
                yield row


def _row(told: dict[str, Any], status: str) -> Row | None:
    """None of a request that was never sent."""
    times = _timings(told)
    arrival = _first(times, "request_start", "start_time", "request_start_time", "resolve_start")
    if isnan(arrival):
        return None
    first = _first(times, "first_token_iteration", "first_iteration", "first_token_time")
    last = _first(times, "last_token_iteration", "last_iteration", "last_token_time")
    end = _first(times, "request_end", "end_time", "request_end_time", "resolve_end")
    error = _dig(told, "info").get("error") or _dig(told, "scheduler_info").get("error") or told.get("error") or ""
    return {
        "arrival": arrival, "prompt_tokens": _tokens(told, "prompt_tokens", "input_metrics"),
        "output_tokens": _tokens(told, "output_tokens", "output_metrics"), "first_token": first,
        "finish": (end if isnan(last) else last) if status == "finished" else nan, "status": status,
        "reason": str(error)[:200],
    }


def _timings(told: dict[str, Any]) -> dict[str, Any]:
    """They moved between versions: of the request itself, of its `scheduler_info`, of its `info`."""
    return {
        **told, **_dig(told, "scheduler_info", "request_timings"), **_dig(told, "info", "timings"),
        **_dig(told, "info", "request_timings"),
    }


def _dig(told: Mapping[str, Any], *names: str) -> dict[str, Any]:
    found: Any = told
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _first(times: Mapping[str, Any], *names: str) -> float:
    return next((value for name in names if not isnan(value := number(times.get(name)))), nan)


def _tokens(told: Mapping[str, Any], name: str, metrics: str) -> int:
    within = _dig(told, metrics)
    return tokens(next((v for v in (told.get(name), within.get("total_tokens"), within.get("text_tokens")) if v), 0))


GUIDELLM = FileImporter("guidellm", "GuideLLM's benchmarks.json", _recognises, _read)
