"""A checked `workload:` section becomes a workload."""

from pathlib import Path

from .closed_loop import ClosedLoopWorkload
from .config import SyntheticConfig, TraceConfig
from .requests import OpenLoop
from .synthetic import make_synthetic
from .trace import load_trace


def build(config: SyntheticConfig | TraceConfig, base: Path | None = None) -> OpenLoop | ClosedLoopWorkload:
    """`base` is the folder of the configuration file, which relative paths start from.

    Raises WorkloadError (a ValueError) with file, line and reason for what cannot be read; OSError passes through.
    """
    return make_synthetic(config, base) if isinstance(config, SyntheticConfig) else load_trace(config, base)
