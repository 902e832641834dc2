"""The seam to what runs a step: a latency model, or a real model and a clock."""

from collections.abc import Callable, Collection, Mapping, Sequence as Ids
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..policies.base import Sequence, Step


@dataclass(frozen=True, slots=True)
class StepResult:
    """What running a step gave: seconds in all, tokens by sequence, and the seconds' parts where they are known.

    `ended`: sequences whose output ends with this step's token because the model says so.
    """

    seconds: float
    sampled: Mapping[Sequence, Ids[int]]
    host_seconds: float = 0.0
    device_seconds: float = 0.0
    ended: Collection[Sequence] = ()


class Backend(Protocol):
    """Runs steps, one at a time and in order; one may be launched while the one ahead of it still runs.

    `empty_step`: seconds that an empty step takes. `clock`: seconds by which the policy's own work is timed and added
    to its steps; None: a policy decides in no time.
    """

    empty_step: float
    clock: Callable[[], float] | None

    def launch(self, step: Step) -> None:
        """Start a step. Block tables are read here, before anything else is scheduled."""

    def collect(self) -> StepResult:
        """Wait for the oldest step that was launched and not collected. Its seconds are its own: those it waited for
        the step ahead of it are not among them."""

    def series(self, step: Step, steps: int) -> NDArray[np.float64] | None:
        """Seconds of each of `steps` decode steps like `step` that follow it; None: they must be run one by one."""
