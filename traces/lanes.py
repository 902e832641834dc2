"""Tracks for things that last, so that no two on one track overlap."""

from heapq import heappop, heappush


class Lanes:
    """Gives each interval the lowest lane that is free at its start. Intervals come by ascending start."""

    def __init__(self) -> None:
        self.count = 0
        self._free: list[int] = []
        self._busy: list[tuple[float, int]] = []

    def take(self, start: float, end: float) -> int:
        """A lane, from 0, for `start` to `end`; it is free again at `end`."""
        while self._busy and self._busy[0][0] <= start:
            heappush(self._free, heappop(self._busy)[1])
        if not self._free:
            heappush(self._free, self.count)
            self.count += 1
        lane = heappop(self._free)
        heappush(self._busy, (end, lane))
        return lane
