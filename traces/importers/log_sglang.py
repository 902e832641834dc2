"""SGLang's log lines: Prefill batch, Decode batch, and retractions."""

import re
from collections.abc import Sequence
from math import nan

from .clock import Clock
from .label import NO_LABEL, Label, label_before
from .record import COUNT, NUMBER, Record, Stateless

END = r"(?=[,\s\\\"]|$)"
"""A backslash or a quote: in lines that a collector keeps as JSON."""
BATCH = re.compile(r"(Prefill|Decode) batch(?: \[\d{1,9}\])?[.,] ", re.ASCII)
RETRACTED = re.compile(
    rf"(?:KV cache pool is full\. Retract requests\.|decode out of memory happened,) #retracted_reqs: ({COUNT}){END}",
    re.ASCII,
)
ITEM = r"#?[A-Za-z][\w ()/-]{0,40}: (?:[\w.+-]{1,30}%?|\*)" + END
ITEMS = re.compile(rf"{ITEM}(?:, {ITEM})*", re.ASCII)
MORE = re.compile(rf"#queue-req: {COUNT}, [#A-Za-z]", re.ASCII)
WHOLE = re.compile(COUNT, re.ASCII)
DECIMAL = re.compile(NUMBER + "%?", re.ASCII)
USAGES = ("token usage", "full token usage")


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
        found = [_batch(match, line) for match in BATCH.finditer(line)]
        records = [record for record in found if record and not (record.unsure and record.kind in self._go_on)]
        if MORE.search(line):
            self._go_on.update(record.kind for record in records if not record.unsure)
        return records or None


def _batch(match: re.Match[str], line: str) -> Record | None:
    """None of one that is cut, by the end of the line or by another record, before all its counts are told."""
    told, label = _items(line, match.end()), label_before(line, match.start())
    running, waiting = (told.get(name, "") for name in ("#running-req", "#queue-req"))
    if label is None or not (WHOLE.fullmatch(running) and WHOLE.fullmatch(waiting)):
        return None
    usage = next((told[name] for name in USAGES if name in told), "")
    return Record(
        match[1].lower(), label.stamp, int(running), int(waiting), rank=_rank(label), member=_member(label),
        prompt_throughput=_number(told.get("input throughput (token/s)", "")), kv_usage=_number(usage),
        generation_throughput=_number(told.get("gen throughput (token/s)", "")),
        hit_rate=_number(told.get("cache hit rate", "")) / 100, unsure=line.endswith(f"#queue-req: {waiting}"),
    )


def _items(line: str, start: int) -> dict[str, str]:
    """`name: value` for each, as far as they follow each other; none of them twice."""
    found = ITEMS.match(line, start)
    pairs = [item.rsplit(": ", 1) for item in found.group().split(", ")] if found else []
    told = {name: value for name, value in pairs}
    return told if len(told) == len(pairs) else {}


def _number(text: str) -> float:
    return float(text.rstrip("%")) if DECIMAL.fullmatch(text) else nan


def _retracted(match: re.Match[str], line: str) -> Record:
    label = label_before(line, match.start()) or NO_LABEL
    return Record(
        "retract", label.stamp, rank=_rank(label), member=_member(label), preempted=int(match[1]),
        unsure=match.end() == len(line),
    )


def _rank(label: Label) -> int | None:
    """A whole bracket without a rank is that of an engine that has one only."""
    return label.numbers.get("DP", label.numbers.get("TP", None if label.stamp is None else 0))


def _member(label: Label) -> str:
    """Ranks of one replica; without replicas the rank itself is chosen."""
    return " ".join(f"{name}{number}" for name, number in label.numbers.items()) if "DP" in label.numbers else ""
