"""TensorRT-LLM's statistics: of the C++ engine (under Triton or alone), the PyTorch back end, and the executor."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from .clock import Clock
from .record import COUNT, NUMBER, Record, Stateless, StepFacts

BACKSLASHES = re.compile(r"\\+\"")
CPP = re.compile(r"\{\"Active Request Count\":[^{}]*\}")
TRITON = re.compile(r"\b[IWE](\d{4} \d\d:\d\d:\d\d\.\d{1,9})", re.ASCII)
ITERATION = re.compile(r"\biter = (\d+), ", re.ASCII)
PYTORCH_CLOCK = re.compile(r"timestamp = (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?)", re.ASCII)
BRACKET_CLOCK = re.compile(r"\[(\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\]", re.ASCII)
FIELDS = {
    name: re.compile(rf"(?<!\w){key}(?=[,}}]{'|$' if name == 'unscheduled' else ''})", re.ASCII) for name, key in {
        "rank": rf"global_rank = ({COUNT})", "scheduled": rf"num_scheduled_requests(?:: | = )({COUNT})",
        "seconds": rf"elapsed_time = ({NUMBER}(?:e-\d\d)?)s", "ms": rf"host_step_time = ({NUMBER})ms",
        "usage": rf"kv_cache_util = ({NUMBER})", "active": rf"num_active = ({COUNT})",
        "unscheduled": rf"num_unscheduled = ({COUNT})", "prefills": rf"'num_ctx_requests': ({COUNT})",
        "prompt": rf"'num_ctx_tokens': ({COUNT})",
    }.items()
}


class TensorrtReader(Stateless):
    """Every record is one iteration. Requests scheduled run; active ones that are not (paused ones among them) wait."""

    def __init__(self, clock: Clock) -> None:
        self._tails = False

    def read(self, line: str) -> Sequence[Record] | None:
        if "Active Request Count" in line:
            plain = BACKSLASHES.sub('"', line)
            return [record for match in CPP.finditer(plain) for record in _cpp(match, plain)] or None
        if "num_scheduled_requests" in line:
            return self._pytorch(line)
        if "numActiveRequests" in line:
            return list(_executor(line)) or None
        return None

    def _pytorch(self, line: str) -> Sequence[Record] | None:
        """Where the lines of a log end with the numbers of active and unscheduled requests, one without is cut."""
        found = [record for record in _pytorch(line) if record.waiting is not None or not self._tails]
        self._tails = self._tails or any(record.waiting is not None for record in found)
        return found or None


def _cpp(match: re.Match[str], line: str) -> Iterator[Record]:
    told = _object(match.group())
    active, scheduled = _count(told, "Active Request Count"), _count(told, "Scheduled Requests")
    if active is None or scheduled is None:
        return
    prefills, decodes = (_count(told, name) for name in ("Context Requests", "Generation Requests"))
    counts = _known({
        "running": scheduled, "forward_width": scheduled, "waiting": max(active - scheduled, 0),
        "prefill_seqs": prefills, "decode_seqs": decodes, "prefill_tokens": _count(told, "Total Context Tokens"),
        "kv_used": _count(told, "Used KV cache blocks"), "kv_total": _count(told, "Max KV cache blocks"),
    })
    yield Record(
        "iteration", _cpp_clock(told, line[: match.start()]), scheduled, max(active - scheduled, 0), rank=0,
        paused=_count(told, "Paused Requests"), step=StepFacts(None, counts),
        kv_usage=_ratio(counts.get("kv_used"), counts.get("kv_total")),
    )


def _cpp_clock(told: dict[str, Any], before: str) -> str | None:
    """Triton's clock has microseconds and no year, the record's own has a year and whole seconds."""
    own, triton = str(told.get("Timestamp", "")), TRITON.findall(before)
    dated = re.fullmatch(r"(\d\d)-(\d\d)-(\d{4}) \d\d:\d\d:\d\d(?:\.\d{1,9})?", own, re.ASCII)
    if triton and dated and dated[1] + dated[2] == triton[-1][:4]:
        return f"{dated[1]}-{dated[2]}-{dated[3]} {triton[-1][5:]}"
    return own if dated else triton[-1] if triton else None


def _pytorch(line: str) -> Iterator[Record]:
    starts = [match.start() for match in ITERATION.finditer(line)]
    for start, end in zip(starts, [*starts, len(line)][1:], strict=True):
        record = _iteration(line[start:end], line[:start])
        if record is not None:
            yield record


def _iteration(text: str, before: str) -> Record | None:
    told = {name: match[1] for name, pattern in FIELDS.items() if (match := pattern.search(text))}
    if "scheduled" not in told:
        return None
    running, waiting = int(told["scheduled"]), None
    if "active" in told and "unscheduled" in told:
        waiting = int(told["unscheduled"])
        running = max(int(told["active"]) - waiting, 0)
    prefills = int(told["prefills"]) if "prefills" in told else None
    prompt = int(told["prompt"]) if "prompt" in told else None
    counts = _known({
        "running": running, "waiting": waiting, "forward_width": int(told["scheduled"]), "prefill_seqs": prefills,
        "decode_seqs": None if prefills is None else max(int(told["scheduled"]) - prefills, 0),
        "prefill_tokens": prompt, "padded_tokens": prompt,
    })
    stamps = PYTORCH_CLOCK.findall(text) or BRACKET_CLOCK.findall(before)
    return Record(
        "iteration", stamps[-1] if stamps else None, running, waiting,
        rank=int(told["rank"]) if "rank" in told else None, kv_usage=float(told.get("usage", "nan")),
        step=StepFacts(_seconds(told), counts), unsure="unscheduled" in told and _ends_with_a_digit(text),
    )


def _ends_with_a_digit(text: str) -> bool:
    return text[-1:].isdigit()


def _seconds(told: dict[str, str]) -> float | None:
    if "ms" in told:
        return float(told["ms"]) / 1e3
    return float(told["seconds"]) if "seconds" in told else None


def _executor(line: str) -> Iterator[Record]:
    """One object, or a list of them, as the executor's statistics are served."""
    for told in _objects(BACKSLASHES.sub('"', line)):
        batch = told.get("inflightBatchingStats")
        batch = batch if isinstance(batch, dict) else {}
        running, waiting = _count(batch, "numScheduledRequests"), _count(told, "numQueuedRequests")
        if running is None or waiting is None:
            continue
        cache = told.get("kvCacheStats")
        cache = cache if isinstance(cache, dict) else {}
        counts = _known({
            "running": running, "waiting": waiting, "forward_width": running,
            "prefill_seqs": _count(batch, "numContextRequests"), "decode_seqs": _count(batch, "numGenRequests"),
            "prefill_tokens": _count(batch, "numCtxTokens"), "kv_used": _count(cache, "usedNumBlocks"),
            "kv_total": _count(cache, "maxNumBlocks"),
        })
        ms, stamp = told.get("iterLatencyMS"), str(told.get("timestamp", ""))
        dated = re.fullmatch(r"\d\d-\d\d-\d{4} \d\d:\d\d:\d\d(?:\.\d{1,9})?", stamp, re.ASCII)
        yield Record(
            "iteration", stamp if dated else None, running, waiting, rank=0, paused=_count(batch, "numPausedRequests"),
            kv_usage=_ratio(counts.get("kv_used"), counts.get("kv_total")),
            step=StepFacts(ms / 1e3 if isinstance(ms, int | float) and 0 <= ms < 1e9 else None, counts),
        )


def _objects(line: str) -> Iterator[dict[str, Any]]:
    starts = [place for place in (line.find("["), line.find("{")) if place >= 0]
    for start in sorted(starts):
        try:
            found, _ = json.JSONDecoder().raw_decode(line, start)
        except (ValueError, RecursionError):
            continue
        objects = [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]
        if objects:  # `[1,0]`, which a launcher of several processes puts first, is a list of none
            yield from objects
            return


def _object(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _count(told: dict[str, Any], name: str) -> int | None:
    value = told.get(name)
    return value if type(value) is int and 0 <= value < 2**31 else None


def _known(counts: dict[str, int | None]) -> dict[str, int]:
    return {name: value for name, value in counts.items() if value is not None}


def _ratio(part: int | None, whole: int | None) -> float:
    return part / whole if part is not None and whole else float("nan")
