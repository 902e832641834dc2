"""vLLM's waiting queues: by arrival, or by priority."""

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from .sequence import Sequence

Key = tuple[int, float, str, int]


class ArrivalQueue(deque[Sequence]):
    """First come first served; a preempted sequence goes to the front."""

    def push(self, sequence: Sequence) -> None:
        self.append(sequence)

    def put_back(self, sequence: Sequence) -> None:
        self.appendleft(sequence)

    def take(self) -> Sequence:
        return self.popleft()


class PriorityQueue:
    """The smallest priority value first, then who arrived first. A preempted sequence gets the place that its priority
    gives it. Who arrived in the same instant goes `by_id` as a string, or in order of submission."""

    def __init__(self, *, by_id: bool) -> None:
        self._by_id = by_id
        self._heap: list[tuple[Key, Sequence]] = []

    def push(self, sequence: Sequence) -> None:
        heappush(self._heap, (self._key(sequence), sequence))

    put_back = push

    def take(self) -> Sequence:
        return heappop(self._heap)[1]

    def remove(self, sequence: Sequence) -> None:
        self._heap.remove((self._key(sequence), sequence))
        heapify(self._heap)

    def __getitem__(self, place: int) -> Sequence:
        return self._heap[place][1]

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Sequence]:
        """In the order in which they would be taken."""
        return (sequence for _, sequence in sorted(self._heap))

    def __contains__(self, sequence: object) -> bool:
        return any(waiting is sequence for _, waiting in self._heap)

    def _key(self, sequence: Sequence) -> Key:
        return sequence.priority, sequence.arrival, sequence.id if self._by_id else "", sequence.order


Queue = ArrivalQueue | PriorityQueue
