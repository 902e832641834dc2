"""What was sampled where no model ran."""

from collections.abc import Callable, Iterator, Mapping, Sequence as Ids

from .sequence import Sequence


class EmulatedSample(Mapping[Sequence, Ids[int]]):
    """`count` derived token ids for each sampling sequence of a step, made when asked for.

    `rows` yields the sampling sequences anew at each call. `accepted`: how many more tokens some of them yield.
    """

    __slots__ = ("_accepted", "_rows", "count")

    def __init__(
        self, rows: Callable[[], Iterator[Sequence]], count: int = 1, accepted: Mapping[Sequence, int] | None = None
    ) -> None:
        self._rows = rows
        self._accepted = accepted or {}
        self.count = count

    def __getitem__(self, sequence: Sequence) -> Ids[int]:
        return sequence.emulate(self.count + self._accepted.get(sequence, 0))

    def __iter__(self) -> Iterator[Sequence]:
        return self._rows()

    def __len__(self) -> int:
        return sum(1 for _ in self._rows())

    def __contains__(self, sequence: object) -> bool:
        return any(row is sequence for row in self._rows())
