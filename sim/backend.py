"""The simulated backend: a step takes what a latency model says, and nobody computes tokens."""

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..engine.backend import StepResult
from ..policies.base import Step
from .latency.model import LatencyModel
from .latency.work import Work


class SimulatedBackend:
    """`empty_step` in seconds."""

    def __init__(self, latency: LatencyModel, *, empty_step: float = 1e-3) -> None:
        self.empty_step = empty_step
        self.clock: Callable[[], float] | None = None
        self._latency = latency
        self._launched: deque[StepResult] = deque()

    def launch(self, step: Step) -> None:
        work = work_of(step)
        seconds, host = self._latency.seconds(work), self._latency.host_seconds(work)
        self._launched.append(StepResult(seconds, step.emulated(), host, seconds - host))

    def collect(self) -> StepResult:
        return self._launched.popleft()

    def series(self, step: Step, steps: int) -> NDArray[np.float64] | None:
        return self._latency.decode_series(work_of(step), steps)


def work_of(step: Step) -> Work:
    """What a step asks of the hardware."""
    totals = step.totals
    return Work(
        totals.forwards, totals.prefill_seqs, totals.decode_seqs, totals.prefill_tokens, totals.padded_tokens,
        totals.context, totals.attended, totals.drafts,
    )
