"""SGLang's log lines: Prefill batch, Decode batch, and retractions."""

import re
from collections.abc import Sequence

from .clock import Clock
from .record import COUNT, NUMBER, Record, Stateless, rate

END = r"(?=[,\s\\\"']|$)"
BATCH = re.compile(r"(Prefill|Decode) batch[.,] ")
RETRACTED = re.compile(
    rf"(?:KV cache pool is full\. Retract requests\.|decode out of memory happened,) #retracted_reqs: ({COUNT}){END}",
    re.ASCII,
)
STAMP = re.compile(r"(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?", re.ASCII)
BRACKET = re.compile(r"\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d", re.ASCII)
LABEL = re.compile(r"\b([A-Z]+)(\d{1,9})\b", re.ASCII)
FIELDS = {
    "running": re.compile(rf"#running-req: ({COUNT}){END}", re.ASCII),
    "waiting": re.compile(rf"#queue-req: ({COUNT}){END}", re.ASCII),
    "usage": re.compile(rf"(?<![a-z] )token usage: ({NUMBER}){END}|full token usage: ({NUMBER}){END}", re.ASCII),
    "hits": re.compile(rf"cache hit rate: ({NUMBER})%", re.ASCII),
    "input": re.compile(rf"input throughput \(token/s\): ({NUMBER}){END}", re.ASCII),
    "gen": re.compile(rf"gen throughput \(token/s\): ({NUMBER}){END}", re.ASCII),
}


class SglangReader(Stateless):
    """A line of prefill comes with every prefill pass, and its `#running-req` leaves out the sequences of that pass;
    one of decode comes with every 40th step. Ranks of one replica print the same counts.

    Where the lines of a log have more behind `#queue-req`, one that ends there is cut, and its number may be, too.
    """

    def __init__(self, clock: Clock) -> None:
        self._go_on: set[str] = set()

    def read(self, line: str) -> Sequence[Record] | None:
        if " batch" in line:
            return self._batches(line)
        if "#retracted_reqs" in line:
            return [_retracted(match, line) for match in RETRACTED.finditer(line)] or None
        return None

    def _batches(self, line: str) -> Sequence[Record] | None:
        starts = list(BATCH.finditer(line))
        ends = [*(match.start() for match in starts), len(line)][1:]
        found = [_batch(match, line, end) for match, end in zip(starts, ends, strict=True)]
        records = [record for record in found if record and not (record.unsure and record.kind in self._go_on)]
        self._go_on.update(record.kind for record in records if not record.unsure)
        return records or None


def _batch(match: re.Match[str], line: str, end: int) -> Record | None:
    bracket = next((b.start() for b in BRACKET.finditer(line, match.end(), end)), end)
    values = {name: pattern.search(line, match.end(), bracket) for name, pattern in FIELDS.items()}
    running, waiting = values["running"], values["waiting"]
    if running is None or waiting is None or waiting.end() == bracket < len(line):
        return None  # where the next record begins, a number may have been cut
    if _beheaded(line, match.start()):
        return None
    told = {name: next(filter(None, found.groups()), None) if found else None for name, found in values.items()}
    stamp, rank, member = _label(line, match.start())
    hits = told["hits"]
    return Record(
        match[1].lower(), stamp, int(running[1]), int(waiting[1]), rank=rank, member=member,
        prompt_throughput=rate(told["input"]), generation_throughput=rate(told["gen"]), kv_usage=rate(told["usage"]),
        hit_rate=rate(hits) / 100 if hits else rate(None), unsure=waiting.end() == len(line),
    )


def _retracted(match: re.Match[str], line: str) -> Record:
    stamp, rank, member = _label(line, match.start())
    return Record("retract", stamp, rank=rank, member=member, preempted=int(match[1]), unsure=match.end() == len(line))


def _beheaded(line: str, place: int) -> bool:
    """What is left of a bracket does not say whose line it is."""
    before = line[:place].rstrip()
    return before.endswith("]") and "[" not in before


def _label(line: str, place: int) -> tuple[str | None, int | None, str]:
    """Clock, replica and rank of the bracket right before `place`."""
    before = line[:place].rstrip()
    bracket = before[before.rfind("["):] if before.endswith("]") else ""
    stamp = STAMP.search(bracket)
    labels = LABEL.findall(bracket)
    numbers = {name: int(number) for name, number in labels}
    member = " ".join(f"{name}{number}" for name, number in labels) if "DP" in numbers else ""
    return stamp.group() if stamp else None, numbers.get("DP", numbers.get("TP")), member
