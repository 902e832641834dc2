"""What the engine needs of any workload."""

from collections.abc import Iterable
from typing import Protocol

from .arrival import Arrival


class Workload(Protocol):
    """A source of requests. The same workload object may be started many times, each time from its beginning."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def count(self) -> int:
        """How many requests there are in all."""

    def start(self) -> "Session":
        """A fresh pass over the workload, with its own state."""


class Session(Protocol):
    """One pass over a workload."""

    def arrivals(self) -> Iterable[Arrival]:
        """Requests known from the start, in order of time."""

    def on_finish(self, id: str, now: float) -> Arrival | None:
        """A request ended (finished or rejected) at `now` seconds; a closed loop answers with its next one."""
