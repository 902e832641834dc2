"""llama.cpp's server log: no counts, but the begin and the end of every task of a slot."""

import re
from collections.abc import Sequence

from .clock import Clock
from .record import Record, Stateless

LAUNCH = re.compile(
    r"slot +launch_slot_: id +(?P<slot>\d{1,6}) \| task (?P<task>-?\d{1,9}) \| processing task\b"
    r"|slot (?P<old>\d{1,6}) is processing \[task id: \d{1,9}\]"
    r"|slot is processing task \|.*?\bid_slot=(?P<mid>\d{1,6})\b", re.ASCII,
)
RELEASE = re.compile(
    r"slot +release: id +(?P<slot>\d{1,6}) \| task (?P<task>-?\d{1,9}) \| stop processing\b"
    r"|slot (?P<old>\d{1,6}) released \(|slot released \|.*?\bid_slot=(?P<mid>\d{1,6})\b", re.ASCII,
)
IDLE = re.compile(r"update_slots *: (?:id +\d+ \| task +-?\d+ \| )?all slots are idle", re.ASCII)
FULL = re.compile(r"update_slots *: .*failed to find (?:a memory slot|free space in the KV cache)", re.ASCII)
CLOCKS = (
    re.compile(r"^(\d{1,9}\.\d\d\.\d{3}\.\d{3}) [A-Z] ", re.ASCII),
    re.compile(r"\b((?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d\d? \d\d:\d\d:\d\d)\b", re.ASCII),
    re.compile(r"\btimestamp=(\d{9,11})\b", re.ASCII),
    re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)", re.ASCII),
)


class LlamacppReader(Stateless):
    """Running is the number of slots between launch and release; what waits, the log does not say.

    A slot that was busy before the log began counts from its next launch on. Its own clock, the seconds since its
    start, goes before one that a collector put there.
    """

    def __init__(self, clock: Clock) -> None:
        self._busy: set[str] = set()

    def read(self, line: str) -> Sequence[Record] | None:
        if "slot" not in line:
            return None
        if match := LAUNCH.search(line):
            self._busy.add(_slot(match))
        elif match := RELEASE.search(line):
            self._busy.discard(_slot(match))
        elif IDLE.search(line):
            self._busy.clear()
        elif FULL.search(line):
            return [Record("full", _clock(line))]
        else:
            return None
        return [Record("request", _clock(line), len(self._busy))]


def _slot(match: re.Match[str]) -> str:
    return match["slot"] or match["old"] or match["mid"]


def _clock(line: str) -> str | None:
    for pattern in CLOCKS:
        if found := pattern.search(line):
            return found[1]
    return None
