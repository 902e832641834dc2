"""Designed steps as a backend runs them, and what they took as the columns that a fit reads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from ..policies.base import Chunk, Forward, Gauges, Sequence as Request, Step
from ..policies.totals import Totals
from .calibration_design import Point

NOISY = 0.05
"""Repeats of a step that spread by more than this are worth a warning."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement of the point at `place`; seconds of the whole step and of the host's part."""

    place: int
    totals: Totals
    seconds: float
    host_seconds: float


@dataclass(frozen=True, slots=True)
class Spread:
    """How far repeats of the same step lie apart, as standard deviation (estimated by the median) over median: the
    `median` of all points, and the `worst` with what step it was."""

    median: float
    worst: float
    worst_at: str

    @property
    def noisy(self) -> bool:
        return self.median > NOISY

    def as_dict(self) -> dict[str, Any]:
        return {"median": float(f"{self.median:.4g}"), "worst": float(f"{self.worst:.4g}"), "worst_at": self.worst_at}


def step_of(point: Point, block_size: int) -> Step:
    """The point as a step of one forward: rows with blocks of their own, scattered over a pool of
    `point.blocks(block_size)` blocks from 1 on, every row yielding a token."""
    blocks = list(range(1, point.blocks(block_size) + 1))
    Random(0).shuffle(blocks)
    return Step(Gauges(0, 0), (Forward(list(_chunks(point, blocks, block_size))),))


def _chunks(point: Point, blocks: list[int], block_size: int) -> Iterator[Chunk]:
    for number, (start, length) in enumerate(point.rows):
        request = Request(f"{point}, row {number}", range(start + length), 1)
        request.block_table = [blocks.pop() for _ in range(-(-(start + length) // block_size))]
        yield Chunk(request, start, length, 0, True, number < point.decode)


def rounds(points: int, count: int, seed: int) -> list[int]:
    """`count` rounds over the places of the points, each in an order of its own: a slow minute of the machine must not
    fall on one kind of step."""
    random = Random(seed)
    return [place for _ in range(count) for place in random.sample(range(points), points)]


def table_of(samples: Sequence[Sample]) -> dict[str, Any]:
    """The columns of a step table that a fit reads (see `sim.measured`)."""
    totals = [sample.totals for sample in samples]
    counts = {
        "forwards": "forwards", "prefill_seqs": "prefill_seqs", "decode_seqs": "decode_seqs",
        "prefill_tokens": "prefill_tokens", "padded_tokens": "padded_tokens", "decode_tokens": "decode_tokens",
        "context_tokens": "context", "attended_tokens": "attended",
    }
    return {name: np.array([getattr(each, field) for each in totals]) for name, field in counts.items()} | {
        "t_start": np.zeros(len(samples)), "t_end": np.array([sample.seconds for sample in samples]),
        "host_seconds": np.array([sample.host_seconds for sample in samples]),
    }


def spread_of(points: Sequence[Point], samples: Sequence[Sample]) -> Spread:
    seconds: list[list[float]] = [[] for _ in points]
    for sample in samples:
        seconds[sample.place].append(sample.seconds)
    spreads = [_spread(np.array(each)) for each in seconds]
    worst = int(np.argmax(spreads))
    return Spread(float(np.median(spreads)), spreads[worst], str(points[worst]))


def _spread(seconds: Any) -> float:
    middle = float(np.median(seconds))
    return 1.4826 * float(np.median(np.abs(seconds - middle))) / middle
