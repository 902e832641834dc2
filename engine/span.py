"""The time that a step, and further decode steps decided with it, took on the run's clock."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Further:
    """Decode steps decided together with the one before them. A value a step: end in nanoseconds, device seconds,
    KV units held after scheduling.

    Where they overlap, one more was decided that stays in flight: `starts` says when each of them was scheduled (that
    one last, nanoseconds), and `after` how many KV units were held when the first step of the span and each of these
    were committed. Else a step is scheduled when the one before it ends, and nothing is given or taken in between.
    """

    ends: NDArray[np.int64]
    device: NDArray[np.float64]
    used: list[int]
    starts: NDArray[np.int64] | None = None
    after: list[int] | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """`start` and `first_end` in nanoseconds; `host` seconds of each step, `device` those of the first."""

    start: int
    first_end: int
    host: float
    device: float
    further: Further | None = None

    @property
    def steps(self) -> int:
        return 1 if self.further is None else 1 + len(self.further.ends)

    @property
    def end(self) -> int:
        return self.first_end if self.further is None else int(self.further.ends[-1])
