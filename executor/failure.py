"""What a device that gives up in the middle of a run is said to have done."""

import torch

from ..engine.errors import BackendFailed
from ..policies.base import Step

WAYS_OUT = "lower engine.num_blocks, engine.max_num_batched_tokens or engine.max_num_seqs"


def starved(error: Exception) -> bool:
    """Memory ran out, on either kind of device."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def failure(error: Exception, step: Step) -> BackendFailed | None:
    """The end of a run that keeps its trace; None where the error is none of the device's."""
    if starved(error):
        return BackendFailed(out_of_memory(f"in {_size(step)}", WAYS_OUT, error))
    if isinstance(error, torch.AcceleratorError):
        return BackendFailed(f"the device failed in or before {_size(step)}: {_first_line(error)}")
    return None


def out_of_memory(when: str, ways_out: str, error: Exception) -> str:
    """What is said of it, in a line."""
    return f"out of memory {when}: {ways_out} ({_first_line(error)})"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _size(step: Step) -> str:
    return f"a step of {step.totals.prefill_tokens} prefill and {step.totals.decode_seqs} decode tokens"
