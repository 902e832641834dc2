"""The machine and the libraries that a run was measured on."""

import platform
from pathlib import Path
from typing import Any

import torch
import transformers


def machine_facts(device: torch.device) -> dict[str, Any]:
    """Device, its name, threads and versions."""
    cuda = device.type == "cuda"
    return {
        "device": str(device), "device_name": torch.cuda.get_device_name(device) if cuda else _processor(),
        "threads": torch.get_num_threads(), "torch": str(torch.__version__), "transformers": transformers.__version__,
        "cuda": torch.version.cuda if cuda else None,
    }


def _processor() -> str:
    """The processor's name where the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
