"""What models and hardware are bundled, one line each."""

from .hardware import hardware_presets, load_hardware
from .quantity import show
from .shape import load_model, presets

GIB = 2**30


def model_lines() -> list[str]:
    """Name, size, layers and KV bytes of each bundled model."""
    return [_model_line(name) for name in presets()]


def hardware_lines() -> list[str]:
    """Name, memory, bandwidth and dense rate of each bundled device."""
    return [_hardware_line(name) for name in hardware_presets()]


def _model_line(name: str) -> str:
    shape = load_model(name)
    active = f" ({shape.active_parameters / 1e9:.1f} B active)" if shape.feed_forward.experts else ""
    return (f"{name}: {shape.parameters / 1e9:.3g} B parameters{active}, {shape.layers} layers, "
            f"{shape.kv_bytes_per_token() / 1024:.4g} KiB of KV per token, {shape.max_model_len:,} tokens at most")


def _hardware_line(name: str) -> str:
    device = load_hardware(name)
    rate = show(device.rate("bfloat16"), "FLOP/s", 3)
    return (f"{name}: {device.description}, {device.memory / GIB:.4g} GiB, {show(device.bandwidth, 'B/s', 3)}, "
            f"{rate} bfloat16")
