"""What is measured, and by which clock."""

from time import perf_counter
from typing import Protocol

import torch


class Stopwatch(Protocol):
    """Times the device's part of one step, over one or more stretches of work."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def seconds(self) -> float:
        """The sum of all stretches. Waits for them."""


class HostStopwatch:
    """`perf_counter`: on a CPU the work is done when the call returns."""

    def __init__(self) -> None:
        self._seconds = self._since = 0.0

    def start(self) -> None:
        self._since = perf_counter()

    def stop(self) -> None:
        self._seconds += perf_counter() - self._since

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


def stopwatch(device: torch.device) -> Stopwatch:
    return CudaStopwatch() if device.type == "cuda" else HostStopwatch()
