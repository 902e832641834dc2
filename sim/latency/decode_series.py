"""The cost of decode steps that differ only in the context they read."""

import numpy as np
from numpy.typing import NDArray

from .work import Work


def series(fixed: float, context_second: float, work: Work, steps: int) -> NDArray[np.float64]:
    """`fixed + context_second * context` for each of `steps` decode steps after `work`, in seconds, shape [steps].

    The same two operations in float64 as the scalar form: bit for bit its result. Raises ValueError where `work`
    is not a pure decode step.
    """
    if work.prefill_seqs:
        raise ValueError(f"only a pure decode step continues as a series, this one prefills {work.prefill_seqs} rows")
    context = work.context_tokens + work.decode_seqs * np.arange(1, steps + 1, dtype=np.float64)
    return np.asarray(fixed + context_second * context, dtype=np.float64)
