"""LMDeploy's log lines."""

import re
from collections.abc import Sequence

from .clock import Clock
from .label import label_before
from .record import COUNT, NUMBER, Record, Stateless, rate, share

CLOCK = re.compile(r"(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?", re.ASCII)
LINE = re.compile(
    rf"Avg thr \(in/out\): (?P<prompt>{NUMBER}) / (?P<made>{NUMBER}) tokens/s, "
    rf"(?:API server|Server) \([a-z/]+/waiting\): (?:{COUNT} / ){{2,5}}(?P<outside>{COUNT}), "
    rf"Engine \(running/waiting\): (?P<running>{COUNT}) / (?P<waiting>{COUNT}),"
    rf"(?: KV cache: (?P<usage>{NUMBER})%,)?(?: Prefix cache hit rate: (?P<hits>{NUMBER})%,)?", re.ASCII,
)
LINE_2025 = re.compile(
    rf"Avg prompt throughput: (?P<prompt>{NUMBER}) tokens/s, Avg generation throughput: (?P<made>{NUMBER}) tokens/s, "
    rf"Running: (?P<running>{COUNT}) reqs, Waiting: (?P<waiting>{COUNT}) reqs, "
    rf"GPU KV cache usage: (?P<usage>{NUMBER})%, *$", re.ASCII,
)


class LmdeployReader(Stateless):
    """Two queues: the engine's, and the server's before it. Nothing is printed when idle."""

    def __init__(self, clock: Clock) -> None:
        """Its lines stand for themselves."""

    def read(self, line: str) -> Sequence[Record] | None:
        if "Engine (running/waiting)" in line:
            return [record for match in LINE.finditer(line) if (record := _record(match, line))] or None
        if "Avg prompt throughput: " in line and (match := LINE_2025.search(line)):
            record = _record(match, line)
            return [record] if record else None
        return None


def _record(match: re.Match[str], line: str) -> Record | None:
    """None where the bracket before it is cut, which says whose line it is."""
    label = label_before(line, match.start())
    if label is None:
        return None
    stamps = [label.stamp] if label.stamp else CLOCK.findall(line, 0, match.start())
    told = match.groupdict()
    outside = told.get("outside")
    return Record(
        "interval", stamps[-1] if stamps else None, int(told["running"]), int(told["waiting"]),
        rank=label.numbers.get("DP", 0 if stamps else None),
        outside=int(outside) if outside else None, prompt_throughput=rate(told["prompt"]),
        generation_throughput=rate(told["made"]), kv_usage=share(told["usage"]), hit_rate=share(told.get("hits")),
    )
