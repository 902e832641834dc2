"""The orders in which waiting requests are looked at."""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence as Ids
from typing import Protocol

from .sequence import Sequence


class WaitingQueue(Protocol):
    """Requests that are not running. A pass looks at `first`, and takes it out (`take`) if it starts or is passed
    over; who was passed over is restored after the pass."""

    @property
    def first(self) -> Sequence: ...

    def add(self, sequence: Sequence) -> None:
        """It arrives."""

    def put_back(self, sequence: Sequence) -> None:
        """It was preempted."""

    def begin_pass(self, number: int) -> None:
        """Nothing is taken out between the passes."""

    def take(self) -> Sequence: ...

    def restore(self, passed: Ids[Sequence]) -> None: ...

    def remove(self, sequence: Sequence) -> None: ...

    def __iter__(self) -> Iterator[Sequence]: ...

    def __len__(self) -> int: ...

    def __contains__(self, sequence: object) -> bool: ...


class Fcfs(deque[Sequence]):
    """First come, first served; who was preempted is first again."""

    @property
    def first(self) -> Sequence:
        return self[0]

    def add(self, sequence: Sequence) -> None:
        self.append(sequence)

    def put_back(self, sequence: Sequence) -> None:
        self.appendleft(sequence)

    def begin_pass(self, number: int) -> None:
        pass

    def take(self) -> Sequence:
        return self.popleft()

    def restore(self, passed: Ids[Sequence]) -> None:
        self.extendleft(reversed(passed))


class ByPriority(list[Sequence]):
    """The most urgent first; of equals those preempted at most `boosts` times, then by arrival, then by submission."""

    def __init__(self, boosts: int) -> None:
        super().__init__()
        self._boosts = boosts

    @property
    def first(self) -> Sequence:
        return self[0]

    def add(self, sequence: Sequence) -> None:
        insort(self, sequence, key=self._rank)

    put_back = add

    def begin_pass(self, number: int) -> None:
        pass

    def take(self) -> Sequence:
        return self.pop(0)

    def restore(self, passed: Ids[Sequence]) -> None:
        for sequence in passed:
            self.add(sequence)

    def _rank(self, sequence: Sequence) -> tuple[int, bool, float, int]:
        boosted = 0 < sequence.preemptions <= self._boosts
        return sequence.priority, not boosted, sequence.arrival, sequence.order


class ByPrefix(list[Sequence]):
    """Who finds most of its tokens cached is first; a pass of waiting is worth `ageing` tokens.

    `cached` tells how many tokens of a request the cache holds now.
    """

    def __init__(self, cached: Callable[[Sequence], int], ageing: int) -> None:
        super().__init__()
        self._cached = cached
        self._ageing = ageing
        self._since: dict[Sequence, int] = {}
        self._pass = 0

    @property
    def first(self) -> Sequence:
        return self[0]

    def add(self, sequence: Sequence) -> None:
        self._since[sequence] = self._pass + 1
        self.append(sequence)

    put_back = add

    def begin_pass(self, number: int) -> None:
        self._pass = number
        worth = {sequence: self._worth(sequence) for sequence in self}
        self.sort(key=lambda sequence: (-worth[sequence], sequence.order))

    def take(self) -> Sequence:
        return self.pop(0)

    def restore(self, passed: Ids[Sequence]) -> None:
        self[:0] = passed

    def _worth(self, sequence: Sequence) -> int:
        return self._cached(sequence) + self._ageing * (self._pass - self._since[sequence])
