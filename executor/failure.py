"""What a device that gives up in the middle of a run is said to have done."""

import torch

from ..engine.errors import BackendFailed
from ..policies.base import Step


def starved(error: Exception) -> bool:
    """Memory ran out, on either kind of device."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def failure(error: Exception, step: Step) -> BackendFailed | None:
    """The end of a run that keeps its trace; None where the error is none of the device's."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if starved(error):
        return _out_of_memory(first, step)
    if isinstance(error, torch.AcceleratorError):
        return BackendFailed(f"the device failed in or before {_size(step)}: {first}")
    return None


def _out_of_memory(first: str, step: Step) -> BackendFailed:
    return BackendFailed(
        f"out of memory in {_size(step)}: lower engine.num_blocks, engine.max_num_batched_tokens or "
        f"engine.max_num_seqs ({first})"
    )


def _size(step: Step) -> str:
    return f"a step of {step.totals.prefill_tokens} prefill and {step.totals.decode_seqs} decode tokens"
