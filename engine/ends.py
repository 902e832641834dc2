"""Whose output is complete: the true output lengths, which no policy sees."""

from collections.abc import Sequence as Ids
from heapq import heappop, heappush

from ..policies.base import DecodeBatch, Sequence, Step
from ..policies.decode_batch import Change

NEVER = 1 << 60


class Ends:
    """Knows after how many tokens each output is complete, at a cost that grows with what changes."""

    def __init__(self) -> None:
        self._length: dict[Sequence, int] = {}
        self._calendars: dict[DecodeBatch, _Calendar] = {}

    def expect(self, sequence: Sequence, length: int) -> None:
        self._length[sequence] = max(1, min(length, sequence.max_tokens))

    def follow(self, batch: DecodeBatch, changes: Ids[Change]) -> None:
        """Note who joined a decode batch; call before its next step."""
        calendar = self._calendars.setdefault(batch, _Calendar(batch))
        for _, sequence, _, joined, _ in changes:
            if joined and sequence.clock is batch:
                calendar.note(sequence, self._length[sequence] - sequence.generated)

    def nearest(self, batch: DecodeBatch) -> int:
        """Steps until the first output of the batch may be complete (at least 1; never too late)."""
        return self._calendars[batch].nearest()

    def stopped(self, step: Step, count: int, strays: Ids[Sequence] = ()) -> list[Sequence]:
        """Who is complete (or was before) once `count` more tokens are there. Call before `commit`.

        `strays` left the step's decode batch after it was launched and still get their token of it.
        """
        length = self._length
        found = [sequence for sequence in strays if sequence.generated + count >= length[sequence]]
        for forward in step.forwards:
            if forward.decode is not None:
                found += self._calendars[forward.decode].due(count)
            for chunk in forward.chunks:
                ends = chunk.samples and chunk.sequence.generated + count >= length[chunk.sequence]
                if ends and chunk.sequence.clock is not forward.decode:  # who joined it since is in its calendar
                    found.append(chunk.sequence)
        return found

    def complete(self, sequence: Sequence) -> bool:
        return sequence.generated >= self._length[sequence]

    def length(self, sequence: Sequence) -> int:
        return self._length[sequence]


class _Calendar:
    """Ends of one decode batch by its ticks; entries of sequences that left are ignored when they come up."""

    def __init__(self, batch: DecodeBatch) -> None:
        self._batch = batch
        self._at: dict[int, list[tuple[Sequence, int]]] = {}
        self._ticks: list[int] = []

    def note(self, sequence: Sequence, left: int) -> None:
        self._add(self._batch.ticks + max(left, 1), sequence, sequence.generated + left)

    def nearest(self) -> int:
        while self._ticks and not self._alive(self._ticks[0]):
            del self._at[heappop(self._ticks)]
        return max(self._ticks[0] - self._batch.ticks, 1) if self._ticks else NEVER

    def _alive(self, tick: int) -> bool:
        return any(sequence.clock is self._batch for sequence, _ in self._at[tick])

    def due(self, count: int) -> list[Sequence]:
        now = self._batch.ticks + count
        found: dict[Sequence, int] = {}  # once, though who left and came back may be noted twice
        while self._ticks and self._ticks[0] <= now:
            for sequence, length in self._at.pop(heappop(self._ticks)):
                if sequence.clock is self._batch and sequence.generated + count >= length:
                    found[sequence] = length
        for sequence, length in found.items():
            self._add(now + 1, sequence, length)  # named again if an engine runs it on
        return list(found)

    def _add(self, tick: int, sequence: Sequence, length: int) -> None:
        if tick not in self._at:
            self._at[tick] = []
            heappush(self._ticks, tick)
        self._at[tick].append((sequence, length))
