"""Steps in flight: scheduled and launched, while the output of the step ahead of them was still to come."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..policies.base import Chunk, Sequence, Step
from ..policies.decode_batch import Change


@dataclass(slots=True)
class Flight:
    """A step and what has become of its rows since it was launched.

    `rows`: its explicit chunks. `strays` left its decode batch, but still get their token of it; the tokens of `lost`
    are thrown away (the request ended, was aborted, or its engine drops the tokens of preempted sequences).
    """

    step: Step
    rows: dict[Sequence, Chunk] = field(default_factory=dict)
    strays: dict[Sequence, None] = field(default_factory=dict)
    lost: dict[Sequence, None] = field(default_factory=dict)

    @classmethod
    def of(cls, step: Step) -> "Flight":
        return cls(step, {chunk.sequence: chunk for forward in step.forwards for chunk in forward.chunks})


class Flights:
    """The steps in flight, oldest first."""

    def __init__(self) -> None:
        self._flights: deque[Flight] = deque()

    def launch(self, step: Step) -> None:
        self._flights.append(Flight.of(step))

    def land(self) -> Flight:
        """The oldest, whose output is there."""
        return self._flights.popleft()

    def follow(self, changes: Iterable[Change]) -> None:
        """Note who left a decode batch that is in flight."""
        for batch, sequence, _, joined, owed in changes:
            for flight in self._flights:
                if joined or all(forward.decode is not batch for forward in flight.step.forwards):
                    continue
                if not owed:
                    flight.lost[sequence] = None
                elif sequence not in flight.rows:  # a row of its own that joined in between is still one
                    flight.strays[sequence] = None

    def ahead(self, sequence: Sequence) -> tuple[int, int]:
        """Tokens of a sequence that explicit rows in flight compute, and how many they sample."""
        computed = sampled = 0
        for flight in self._flights:
            chunk = flight.rows.get(sequence)
            stray = sequence in flight.strays
            computed += stray if chunk is None else chunk.length
            sampled += stray if chunk is None else chunk.samples
        return computed, sampled

    def preempt(self, sequence: Sequence, *, delivers: bool) -> None:
        """Its KV is gone; `delivers`: the tokens in flight are not."""
        for flight in self._flights:
            chunk = flight.rows.pop(sequence, None)
            if chunk is not None and chunk.samples and not delivers:
                flight.lost[sequence] = None

    def drop(self, sequence: Sequence) -> None:
        """It was aborted."""
        for flight in self._flights:
            chunk = flight.rows.pop(sequence, None)
            if (chunk is not None and chunk.samples) or flight.strays.pop(sequence, 0) is None:
                flight.lost[sequence] = None
