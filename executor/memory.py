"""How much memory there is, what a model needs of it, and how many KV blocks are left."""

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from .errors import ExecutorError

GIB = 2**30
CGROUP = Path("/sys/fs/cgroup")
CPU_SHARE, CPU_MOST = 0.5, 4 * GIB
"""An unstated KV pool on a CPU takes half of what is free, 4 GiB at most."""


def free_memory(device: torch.device) -> int:
    """Bytes that can still be allocated, as far as the system says."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min(_system_free(), _group_free())


def _system_free() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _group_free() -> int:
    """What the limit of a container leaves."""
    try:
        limit, used = (int((CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):
        return 1 << 62
    return max(limit - used, 0)


def require(model: str, parts: Mapping[str, float], device: torch.device, ways_out: str) -> None:
    """Raises `ExecutorError` with the numbers where the parts, in bytes, are more than is free."""
    free, needed = free_memory(device), sum(parts.values())
    if needed > free:
        told = " and ".join(f"{name} {gib(size)}" for name, size in parts.items())
        made = f"{told} make {gib(needed)}" if len(parts) > 1 else told
        raise ExecutorError(f"{model} does not fit on {device}: {made}, {gib(free)} is free; {ways_out}")


def fitting_blocks(block_bytes: int, device: torch.device, *, peak: int = 0, utilisation: float = 0.9) -> int:
    """Blocks of a KV pool that fills what is left beside the model.

    CUDA: `utilisation` of the whole memory, less what is taken now and `peak`, the bytes that the largest forward pass
    takes on top. Raises `ExecutorError` where not one block fits.
    """
    free = free_memory(device)
    if device.type == "cuda":
        left = free - (1 - utilisation) * torch.cuda.get_device_properties(device).total_memory - peak
    else:
        left = min(free * CPU_SHARE, CPU_MOST)
    blocks = int(left // block_bytes)
    if blocks < 1:
        raise ExecutorError(
            f"no KV block fits on {device}: {gib(free)} is free, a forward pass takes {gib(peak)} of it, a block "
            f"{gib(block_bytes)}; lower engine.max_num_batched_tokens or engine.block_size, or take a smaller model"
        )
    return blocks


def gib(size: float) -> str:
    return f"{size / GIB:,.2f} GiB"
