"""vLLM's running list, kept so that a decode step costs what changes in it."""

from collections.abc import Iterator

from .decode_batch import DecodeBatch
from .kv.growth import Growth
from .sequence import Sequence
from .step import Chunk


class Running:
    """Sequences in the order of their admission (`seats`, numbered). Those that decode at every step stand in a decode
    batch; the `others` (half prefilled, passed over, or about to end) are looked at one by one.

    `flying` holds the rows of the step in flight by their sequences, but for those of the decode batch; `owed` the
    rows of sequences that have left the batch since. Positions are those of the next step to be scheduled.
    """

    def __init__(self, block_size: int, *, overlap: bool) -> None:
        self._overlap = overlap
        self.batch = DecodeBatch()
        self.growth = Growth(self.batch, block_size)
        self.others: dict[Sequence, None] = {}
        self.flying: dict[Sequence, Chunk] = {}
        self.owed: list[Chunk] = []
        self.seats: dict[Sequence, int] = {}
        self._admitted = 0
        self._lasts: dict[int, dict[Sequence, None]] = {}

    def __len__(self) -> int:
        return len(self.seats)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self.seats)

    def __contains__(self, sequence: object) -> bool:
        return sequence in self.seats

    @property
    def last(self) -> Sequence:
        return next(reversed(self.seats))

    def seat(self, sequence: Sequence) -> int:
        """Grows in the order of admission."""
        return self.seats[sequence]

    def behind(self, sequence: Sequence) -> list[Sequence]:
        seat = self.seats[sequence]
        return [other for other, place in self.seats.items() if place > seat]

    def in_order(self, sequences: list[Sequence]) -> list[Sequence]:
        return sorted(sequences, key=self.seats.__getitem__) if len(sequences) > 1 else sequences

    def admit(self, sequence: Sequence) -> None:
        self.seats[sequence] = self._admitted
        self._admitted += 1
        self.others[sequence] = None

    def remove(self, sequence: Sequence, *, owed: bool = False) -> int:
        """It ended or was preempted; `owed`: its token in flight will still count. Returns its seat."""
        if sequence in self.batch:
            self._leave(sequence, owed=owed)
        self.others.pop(sequence, None)
        return self.seats.pop(sequence)

    def position(self, sequence: Sequence) -> tuple[int, int]:
        """Tokens that will have been computed, and tokens that there will be, when the step in flight is done."""
        if sequence in self.batch:
            return sequence.computed + self.batch.flying, sequence.num_tokens + self.batch.flying
        row = self.flying.get(sequence)
        if row is None:
            return sequence.computed, sequence.num_tokens
        return row.end, sequence.num_tokens + row.samples

    def sampling(self, sequence: Sequence) -> bool:
        """A token of it is in flight."""
        row = self.flying.get(sequence)
        return self.batch.flying > 0 if sequence in self.batch else row is not None and row.samples

    def step_out(self, sequence: Sequence) -> None:
        """A member of the decode batch sits the next step out."""
        self._leave(sequence, owed=self.batch.flying > 0)
        self.others[sequence] = None

    def _leave(self, sequence: Sequence, *, owed: bool) -> None:
        if owed and self.batch.flying:
            row = Chunk(sequence, sequence.computed, 1, 0, True, True)
            self.flying[sequence] = row
            self.owed.append(row)
        self.batch.leave(sequence, owed=owed and self.batch.flying > 0)

    def may_join(self, sequence: Sequence) -> bool:
        """Its next row is a decode, and the step in flight gives a token to it as to every member of the batch."""
        return self.sampling(sequence) is (self.batch.flying > 0)

    def join(self, sequence: Sequence) -> None:
        """Decode at every step from the next one on."""
        del self.others[sequence]
        self.batch.join(sequence)
        self.growth.watch(sequence)
        if self._overlap:
            self._note_last(sequence)

    def _note_last(self, sequence: Sequence) -> None:
        last = self.batch.ticks + sequence.prompt_len + sequence.max_tokens - 1 - sequence.computed
        self._lasts.setdefault(last, {})[sequence] = None

    def finishing(self) -> list[Sequence]:
        """Members whose token in flight is their last."""
        due = self._lasts.pop(self.batch.ticks + self.batch.flying, None)
        return [] if due is None else [sequence for sequence in due if self._is_last(sequence)]

    def _is_last(self, sequence: Sequence) -> bool:
        return sequence in self.batch and sequence.generated + self.batch.flying >= sequence.max_tokens
