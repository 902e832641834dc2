"""What was sampled where no model ran."""

from collections.abc import Callable, Iterator, Mapping, Sequence as Ids

from .sequence import Sequence


class EmulatedSample(Mapping[Sequence, Ids[int]]):
    """`count` derived token ids for each sampling sequence of a step, made when asked for.

    `rows` yields the sampling sequences anew at each call.
    """

    __slots__ = ("_rows", "count")

    def __init__(self, rows: Callable[[], Iterator[Sequence]], count: int = 1) -> None:
        self._rows = rows
        self.count = count

    def __getitem__(self, sequence: Sequence) -> Ids[int]:
        return sequence.emulate(self.count)

    def __iter__(self) -> Iterator[Sequence]:
        return self._rows()

    def __len__(self) -> int:
        return sum(1 for _ in self._rows())

    def __contains__(self, sequence: object) -> bool:
        return any(row is sequence for row in self._rows())
