"""Requests that are still to arrive, in order of time."""

from collections.abc import Iterable
from heapq import heappop, heappush

from ..workloads.arrival import Arrival
from .times import to_ns


class Feed:
    """Merges what a workload knows from the start with what a closed loop adds. Times in nanoseconds.

    Raises ValueError if the known arrivals are not in order.
    """

    def __init__(self, known: Iterable[Arrival]) -> None:
        self._known = iter(known)
        self._heap: list[tuple[int, int, Arrival]] = []
        self._count = 0
        self._last = 0
        self._pull()

    @property
    def next_ns(self) -> int | None:
        """When the next request arrives; None: none is known."""
        return self._heap[0][0] if self._heap else None

    def add(self, arrival: Arrival) -> None:
        """A closed loop's next request."""
        self._push(arrival)

    def take(self, now: int) -> list[tuple[int, Arrival]]:
        """Those that have arrived by `now`."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            time, order, arrival = heappop(self._heap)
            due.append((time, arrival))
            if order == self._pulled:
                self._pull()
        return due

    def _pull(self) -> None:
        """Bring the next known arrival into the heap; one at a time, so that a long trace stays lazy."""
        self._pulled = self._count
        arrival = next(self._known, None)
        if arrival is not None:
            time = self._push(arrival)
            if time < self._last:
                raise ValueError(f"workload: {arrival.id} arrives at {arrival.time} s, before the request ahead of it")
            self._last = time

    def _push(self, arrival: Arrival) -> int:
        time = to_ns(arrival.time)
        heappush(self._heap, (time, self._count, arrival))
        self._count += 1
        return time
