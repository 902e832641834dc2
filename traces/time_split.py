"""What a difference between two makespans is made of."""

from dataclasses import dataclass

from .quantities import makespan
from .run import Run


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """b's makespan minus a's, in seconds, and its parts, which add up to it: `steps` more or fewer at the mean cost
    of a step, `step_cost` at the mean number of steps, `idle` time in which no step ran (less where steps overlap)."""

    total: float
    steps: float
    step_cost: float
    idle: float

    @classmethod
    def of(cls, a: Run, b: Run) -> "TimeSplit":
        (steps_a, cost_a, idle_a), (steps_b, cost_b, idle_b) = _budget(a), _budget(b)
        return cls(
            total=makespan(b) - makespan(a), steps=(steps_b - steps_a) * (cost_a + cost_b) / 2,
            step_cost=(cost_b - cost_a) * (steps_a + steps_b) / 2, idle=idle_b - idle_a,
        )


def _budget(run: Run) -> tuple[int, float, float]:
    """Steps, mean seconds of one, and seconds of the makespan in which none ran."""
    seconds = run.step_seconds()
    busy = float(seconds.sum())
    return len(seconds), busy / len(seconds) if len(seconds) else 0.0, makespan(run) - busy
