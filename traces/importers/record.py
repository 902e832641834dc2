"""What one line of an engine's log says."""

from collections.abc import Iterable, Sequence
from math import nan
from typing import Any, NamedTuple, Protocol

COUNT = r"\d{1,9}"
NUMBER = r"\d{1,15}(?:\.\d{1,24})?"
"""What a count and a number look like; whoever uses them says what must follow, so that none is cut unseen."""


class StepFacts(NamedTuple):
    """One iteration; `seconds` it took, None where the log does not say. Counts of the step table by their names."""

    seconds: float | None
    counts: dict[str, int]


class Record(NamedTuple):
    """A gauge sample as the columns of the samples have it, or an event, whose `running` and `waiting` are None.

    `stamp`: the engine's own clock as it stands in the line, or seconds that the `Clock` has given; None: the line
    has none, the time of the one before it holds. `rank`: None where the line does not say. `member`: which of several
    processes that print the same counts. `preempted`: since the record before; `preemptions`: all so far.
    `step`: where the record is one iteration. `request`: where a request has ended, its row of the request table,
    times being the clock's seconds. `unsure`: the last number stands at the very end of the line, and might go on if
    the line was cut.
    """

    kind: str
    stamp: str | float | None
    running: int | None = None
    waiting: int | None = None
    rank: int | None = None
    member: str = ""
    swapped: int | None = None
    deferred: int | None = None
    paused: int | None = None
    outside: int | None = None
    prompt_throughput: float = nan
    generation_throughput: float = nan
    kv_usage: float = nan
    hit_rate: float = nan
    preempted: int | None = None
    preemptions: int | None = None
    step: StepFacts | None = None
    request: dict[str, Any] | None = None
    unsure: bool = False


class LineReader(Protocol):
    """Reads the lines of one log in order."""

    def read(self, line: str) -> Sequence[Record] | None:
        """What a line says: None where it is none of this engine's, empty where it says something for later."""

    def end(self) -> Iterable[Record]:
        """What was still kept back when the log ended."""


class Stateless:
    """A reader whose lines stand for themselves."""

    def end(self) -> Iterable[Record]:
        return ()


def share(percent: str | None) -> float:
    """A printed percentage as a share; NaN where there is none."""
    return nan if percent is None else float(percent) / 100


def rate(text: str | None) -> float:
    return nan if text is None else float(text)


def count(text: str | None) -> int | None:
    return None if text is None else int(text)
