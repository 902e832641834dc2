"""A backend that could not be made ready: the run that needs it fails at its first step."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..engine.backend import StepResult
from ..engine.errors import BackendFailed
from ..policies.base import Step


class Unready:
    """`why`: what the run's report will say."""

    def __init__(self, why: str) -> None:
        self.empty_step = 1e-3
        self.clock: Callable[[], float] | None = None
        self._why = why

    def launch(self, step: Step) -> None:
        raise BackendFailed(self._why)

    def collect(self) -> StepResult:
        raise BackendFailed(self._why)

    def series(self, step: Step, steps: int) -> NDArray[np.float64] | None:
        return None
