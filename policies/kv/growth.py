"""When each member of a decode batch needs its next block."""

from ..decode_batch import DecodeBatch
from ..sequence import Sequence


class Growth:
    """A calendar by the batch's ticks: only those whose next token needs a new block are looked at."""

    def __init__(self, batch: DecodeBatch, block_size: int) -> None:
        self._batch = batch
        self._block_size = block_size
        self._due: dict[int, dict[Sequence, None]] = {}

    def watch(self, sequence: Sequence) -> None:
        """Note when a member will have filled the blocks it holds. Call after it joined or was given blocks."""
        tick = self._batch.ticks + len(sequence.block_table) * self._block_size - sequence.computed
        self._due.setdefault(tick, {})[sequence] = None

    def renew(self, due: list[Sequence]) -> None:
        """Those that `take` gave now have one block more each."""
        if due:
            tick = self._batch.ticks + len(due[0].block_table) * self._block_size - due[0].computed
            self._due.setdefault(tick, {}).update(dict.fromkeys(due))

    def peek(self, ahead: int = 0) -> list[Sequence]:
        """Members that will have filled all their blocks `ahead` ticks from now, in the order they were noted."""
        due = self._due.get(self._batch.ticks + ahead)
        return [] if due is None else [sequence for sequence in due if self._full(sequence, ahead)]

    def take(self, ahead: int = 0) -> list[Sequence]:
        """Members that need a block for the step `ahead` ticks from now; each must be given one, or leave."""
        due = self._due.pop(self._batch.ticks + ahead, None)
        return [] if due is None else [sequence for sequence in due if self._full(sequence, ahead)]

    def steps_within(self, free: int) -> int:
        """How many further steps after the current one `free` blocks suffice for (a lower bound)."""
        if not self._batch.members:
            return 0
        cycles = free // len(self._batch.members)
        left, steps = free - cycles * len(self._batch.members), cycles * self._block_size
        for ahead in range(1, self._block_size + 1):
            left -= len(self._due.get(self._batch.ticks + ahead, ()))
            if left < 0:
                break
            steps += 1
        return steps

    def _full(self, sequence: Sequence, ahead: int) -> bool:
        if sequence.clock is not self._batch:
            return False
        return sequence.computed + ahead == len(sequence.block_table) * self._block_size
