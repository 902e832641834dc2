"""What a latency model answers."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .work import Work


class LatencyModel(Protocol):
    """Seconds of a step from its work. Pure: the same work always costs the same."""

    def seconds(self, work: Work) -> float:
        """Of the whole step, the host's part included."""

    def host_seconds(self, work: Work) -> float:
        """The host's part of `seconds`: scheduling and input building that nothing hides."""

    def decode_series(self, work: Work, steps: int) -> NDArray[np.float64]:
        """Seconds of each of `steps` pure decode steps that follow `work`; the i-th (from 1) reads
        `i * work.decode_seqs` more context tokens. Bit for bit what `seconds` gives step by step."""

    def describe(self) -> dict[str, object]:
        """The resolved parameters, for the record of the run."""
