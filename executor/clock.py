"""What is measured, and by which clock."""

from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Literal, Protocol, get_args

import torch

from .errors import ExecutorError

Clock = Literal["wall", "cpu"]
CLOCKS: tuple[Clock, ...] = get_args(Clock)
"""`cpu`: seconds that this thread computed, not those that it waited for a busy machine."""


def ticker(clock: Clock, device: torch.device) -> Callable[[], float]:
    """Seconds from some start. Raises `ExecutorError` where the thread's own seconds are not those of the work."""
    if clock == "wall":
        return perf_counter
    if device.type != "cpu":
        raise ExecutorError(f"clock cpu counts the seconds of a CPU thread, the model runs on {device}: use wall")
    if torch.get_num_threads() > 1:
        raise ExecutorError(f"clock cpu counts the seconds of one thread, torch has {torch.get_num_threads()}: say "
                            "--threads 1, or use wall")
    return thread_time


class Stopwatch(Protocol):
    """Times the device's part of one step, over one or more stretches of work."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def seconds(self) -> float:
        """The sum of all stretches. Waits for them."""


class HostStopwatch:
    """On a CPU the work is done when the call returns. `now`: seconds."""

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        self._now = now
        self._seconds = self._since = 0.0

    def start(self) -> None:
        self._since = self._now()

    def stop(self) -> None:
        self._seconds += self._now() - self._since

    def seconds(self) -> float:
        return self._seconds


class CudaStopwatch:
    """CUDA events, put into the stream of work and read when it is done."""

    def __init__(self) -> None:
        self._stretches: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def start(self) -> None:
        pair = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        pair[0].record()
        self._stretches.append(pair)

    def stop(self) -> None:
        self._stretches[-1][1].record()

    def seconds(self) -> float:
        total = 0.0
        for begin, end in self._stretches:
            end.synchronize()
            total += begin.elapsed_time(end) / 1e3
        return total


def stopwatch(device: torch.device, now: Callable[[], float] = perf_counter) -> Stopwatch:
    """`now`: seconds of the host's clock."""
    return CudaStopwatch() if device.type == "cuda" else HostStopwatch(now)
