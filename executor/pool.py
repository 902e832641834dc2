"""The size of the KV pool where nobody states it."""

import torch

from .hook import Witness, hold, let_go
from .memory import fitting_blocks
from .model import PagedModel, run_alone


def auto_blocks(
    model: PagedModel, block_size: int, *, batched_tokens: int = 8192, utilisation: float = 0.9
) -> int:
    """Blocks that fill what the device has left, once the largest forward pass has what it needs.

    CUDA: `utilisation` of the memory, less the weights and the measured peak of a pass over `batched_tokens` tokens.
    CPU: half of what is free, 4 GiB at most. Raises `ExecutorError` where not one block fits.
    """
    block = model.kv_bytes_per_token * block_size
    return fitting_blocks(block, model.device, peak=peak_of_forward(model, batched_tokens), utilisation=utilisation)


def peak_of_forward(model: PagedModel, tokens: int) -> int:
    """Bytes that a pass takes beyond what is allocated before it; 0 on a CPU, where nobody counts."""
    if model.device.type != "cuda":
        return 0
    ids = torch.zeros(1, tokens, dtype=torch.int64, device=model.device)
    model.detach()
    hold(model.modules, Witness())
    try:
        torch.cuda.reset_peak_memory_stats(model.device)
        before = torch.cuda.memory_allocated(model.device)
        run_alone(model.network, ids)
        return torch.cuda.max_memory_allocated(model.device) - before
    finally:
        let_go(model.modules)
        torch.cuda.empty_cache()
