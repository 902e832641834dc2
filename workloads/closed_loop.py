"""A closed loop: a number of clients, each of which sends its next request when its last one has ended."""

from collections import deque
from dataclasses import dataclass, replace

from .arrival import Arrival


@dataclass(frozen=True, slots=True)
class ClosedLoopWorkload:
    """`clients` requests in flight until `requests` (whose own times do not count) have all been sent.

    `think_time` in seconds from an end to the next request of that client. `notes` say how the requests came about.
    """

    name: str
    requests: tuple[Arrival, ...]
    clients: int
    think_time: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.requests)

    def start(self) -> "ClosedLoopSession":
        return ClosedLoopSession(self)


class ClosedLoopSession:
    """Hands out the next request at each end."""

    def __init__(self, workload: ClosedLoopWorkload) -> None:
        self._first = workload.requests[: workload.clients]
        self._left = deque(workload.requests[workload.clients :])
        self._think_time = workload.think_time

    def arrivals(self) -> list[Arrival]:
        return [replace(request, time=0.0) for request in self._first]

    def on_finish(self, id: str, now: float) -> Arrival | None:
        return replace(self._left.popleft(), time=now + self._think_time) if self._left else None
