"""A log, read line by line into a run's folder."""

import re
from collections.abc import Iterable, Iterator, Sequence
from math import nan
from pathlib import Path
from typing import Any

from ..atomic import write_folder
from ..run_files import META, meta_text, refuse_to_overwrite
from .clock import Clock
from .errors import ImportFault
from .importer import Imported, LogImporter
from .options import ImportOptions
from .record import LineReader, Record
from .sink import Sink
from .source import lines_of

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]")
ENOUGH = 50
"""Lines of one engine that settle whose log it is."""
WRAPPED = 8
"""Lines in a row that may be the beginning of one that was wrapped."""


def clean(line: str) -> str:
    """Without its end and without terminal codes."""
    bare = line.rstrip("\r\n")
    return ANSI.sub("", bare) if "\x1b" in bare else bare


def choose_log(path: Path, importers: Sequence[LogImporter], options: ImportOptions) -> LogImporter | None:
    """The engine most of whose lines are in the file; of equals the first. None where there is none."""
    readers = [(importer, importer.reader(Clock(options.year, "UTC"))) for importer in importers]
    counts = dict.fromkeys((importer.name for importer in importers), 0)
    for line in map(clean, lines_of(path)):
        for importer, reader in readers:
            if reader.read(line) is not None:
                counts[importer.name] += 1
        if max(counts.values()) >= ENOUGH:
            break
    best = max(importers, key=lambda importer: counts[importer.name])
    return best if counts[best.name] else None


def labelled_kinds(path: Path, importer: LogImporter, options: ImportOptions) -> set[str]:
    """Kinds of records of which the first lines of the log say whose they are."""
    reader, seen = importer.reader(Clock(options.year, "UTC")), 0
    found: set[str] = set()
    for line in map(clean, lines_of(path)):
        records = reader.read(line) or ()
        found.update(record.kind for record in records if record.rank is not None)
        seen += len(records)
        if seen >= ENOUGH:
            break
    return found


def import_log(path: Path, importer: LogImporter, options: ImportOptions, out: Path, meta: dict[str, Any]) -> Imported:
    """Write the run of a log into `out`, whole or not at all, in memory that does not grow with the log.

    `meta` is completed with what was found. Raises ImportFault where no line matches, or none of the rank; RunError
    where `out` is not to be replaced.
    """
    refuse_to_overwrite(out)
    reading: list[Imported] = []

    def fill(inside: Path) -> None:
        log = _Log(path, importer, options, Sink(inside))
        log.read()
        reading.append(log.report())
        told = meta | log.meta() | {"source": {**meta.get("source", {}), **reading[0].counts()}}
        (inside / META).write_text(meta_text(told | {"notes": list(reading[0].notes)}), "utf-8", newline="\n")

    write_folder(out, fill)
    return reading[0]


class _Log:
    """One log on its way into the tables."""

    def __init__(self, path: Path, importer: LogImporter, options: ImportOptions, sink: Sink) -> None:
        self._path = path
        self._importer = importer
        self._options = options
        self._sink = sink
        self._clock = Clock(options.year, options.zone)
        self._reader: LineReader = importer.reader(self._clock)
        self._lines = self._matched = self._untimed = self._timeless = self._cut = self._beheaded = 0
        self._start: float | None = None
        self._now = nan
        self._last_end = float("-inf")
        self._ranks: dict[int, int] = {}
        self._labelled = labelled_kinds(path, importer, options)
        self._member: str | None = None
        self._broken: list[str] = []
        self._repeated = 0
        self._preemptions: int | None = None
        self._before: Record | None = None

    def read(self) -> None:
        """Raises ImportFault where nothing is of this engine, or nothing of the rank."""
        read = self._joined if self._options.wrapped else self._reader.read
        for line in lines_of(self._path):
            found = read(clean(line))
            self._lines += 1
            if found is not None:
                self._matched += 1
                self._take(found, line.endswith(("\n", "\r")))
        self._take(self._reader.end(), True)
        self._sink.close()
        self._refuse_nothing()

    def _joined(self, line: str) -> Sequence[Record] | None:
        """Of the line alone, or of it behind the last few that told nothing; those then count as matched."""
        found = self._reader.read(line)
        for place in range(len(self._broken) if found is None else 0):
            found = self._reader.read("".join((*self._broken[place:], line)))
            if found is not None:
                self._matched += len(self._broken) - place
                break
        self._broken = [] if found is not None else [*self._broken, line][-WRAPPED:]
        return found

    def _take(self, records: Iterable[Record], whole: bool) -> None:
        for record in records:
            if record.unsure and not whole and self._seems_cut(record):
                self._cut += 1
            elif self._is_of_rank(record):
                self._place(record)

    def _seems_cut(self, record: Record) -> bool:
        """The file ends within the line; a last number with which the one before it began is taken for part of one."""
        before, now = (str(each.waiting) if each is not None else "" for each in (self._before, record))
        return len(before) > len(now) and before.startswith(now)

    def _is_of_rank(self, record: Record) -> bool:
        """Where lines of a kind say whose they are, one that does not has lost it: it may be anyone's."""
        if record.rank is None and record.running is not None and record.kind in self._labelled:
            self._beheaded += 1
            return False
        if record.rank is not None:
            self._labelled.add(record.kind)
            self._ranks[record.rank] = self._ranks.get(record.rank, 0) + 1
            if record.rank != self._options.rank:
                return False
        if not record.member:
            return True
        if self._member is None:
            self._member = record.member
        self._repeated += record.member != self._member
        return record.member == self._member

    def _place(self, record: Record) -> None:
        time = self._time(record)
        if record.preemptions is not None:
            self._preemptions = record.preemptions
        elif record.preempted is not None:
            self._preemptions = min((self._preemptions or 0) + record.preempted, 2**31 - 1)
        self._before = record
        if record.step is not None:
            self._step(record, time)
        if record.request is not None:
            self._request(record.request)
        else:
            self._sink.sample(record, time, self._options.rank, self._preemptions)

    def _time(self, record: Record) -> float:
        """Seconds from the first record; NaN before any clock was seen."""
        if record.stamp is not None:
            seconds = record.stamp if isinstance(record.stamp, float) else self._clock.seconds(record.stamp)
            if self._start is None:
                before = record.step.seconds if record.step is not None else None
                self._start = seconds - (before or 0.0)
            self._now = seconds - self._start + self._options.offset
        else:
            self._untimed += 1
        return self._now

    def _step(self, record: Record, time: float) -> None:
        """A clock of whole seconds is too coarse: a step begins when the one before it has ended, if not later."""
        facts = record.step
        assert facts is not None
        seconds = facts.seconds or 0.0
        self._timeless += facts.seconds is None
        end = self._last_end if time != time else time
        start = max(self._last_end, end - seconds) if end > float("-inf") else 0.0
        self._last_end = start + seconds
        self._sink.step(start, self._last_end, facts.counts)

    def _request(self, row: dict[str, Any]) -> None:
        base = (self._start or 0.0) - self._options.offset
        times = ("arrival", "first_scheduled", "first_token", "finish")
        self._sink.requests.append({k: v - base if k in times else v for k, v in row.items()})

    def _refuse_nothing(self) -> None:
        if not self._matched:
            raise ImportFault(f"{self._path}: none of its {self._lines:,} lines is {self._importer.about}")
        if not (self._sink.samples.rows or self._sink.requests.rows):
            ranks = ", ".join(str(rank) for rank in sorted(self._ranks)) or "none"
            raise ImportFault(
                f"{self._path}: {self._matched:,} lines are {self._importer.about}, but none tells of rank "
                f"{self._options.rank}; ranks in it: {ranks}"
            )

    def meta(self) -> dict[str, Any]:
        known = [name for name in sorted(self._sink.known)]
        clock = None if self._start is None else self._clock.moment(self._start)
        return {"engine": self._importer.name, "clock_start": clock, "known_step_columns": known}

    def report(self) -> Imported:
        sink = self._sink
        return Imported(
            self._importer.name, self._lines, self._matched, sink.samples.rows, sink.steps.rows, sink.requests.rows,
            tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        others = {rank: count for rank, count in sorted(self._ranks.items()) if rank != self._options.rank}
        if others:
            told = ", ".join(f"{rank} ({count:,})" for rank, count in others.items())
            yield f"records of other ranks were left out, and are not added up: {told}"
        if self._repeated:
            yield f"records of other processes than {self._member} were left out, as repetitions: {self._repeated:,}"
        if self._beheaded:
            yield f"{self._beheaded:,} records lost whose they are, and were left out"
        if self._cut:
            yield "the last line is cut within its last number and was left out"
        if self._sink.steps.rows and self._timeless:
            yield f"{self._timeless:,} iterations do not say how long they took: their steps last 0 s"
        if self._untimed:
            yield f"{self._untimed:,} records have no clock: they have the time of the one before, if any"
        if self._clock.jumps:
            yield f"the log's clock jumps back {self._clock.jumps} times; it was taken to go on from where it was"
