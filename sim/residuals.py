"""What a fit is off by."""

import numpy as np
from numpy.typing import NDArray


class Residuals:
    """Of what has `seconds` as measured and `predicted` as the model has it, both of shape [n]."""

    __slots__ = ()
    seconds: NDArray[np.float64]
    predicted: NDArray[np.float64]

    @property
    def errors(self) -> NDArray[np.float64]:
        """(predicted - measured) / measured of each row, shape [n]."""
        return self.predicted / self.seconds - 1.0

    @property
    def max_error(self) -> float:
        return float(np.abs(self.errors).max())

    @property
    def mean_error(self) -> float:
        return float(np.abs(self.errors).mean())
