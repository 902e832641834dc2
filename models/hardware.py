"""What one device can do: memory, rates, and how much of them an engine gets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from .dtype import canonical
from .fields import ByteRate, Bytes, FlopRate, Fraction, Memory, Seconds
from .find import existing, unknown

HERE = Path(__file__).parent
PREFIX = "hw_"


class HardwareError(ValueError):
    """A hardware file that cannot be found, read or understood."""


class Hardware(BaseModel):
    """One device. Texts with units are taken everywhere; plain numbers are B, B/s, FLOP/s and s.

    `memory` is what a program can allocate, `reserve` what the runtime takes of it before any model. `flops`: dense
    rates by number format. `link_bandwidth`: to the other devices, one direction; `link_latency`: of one all-reduce.
    The efficiencies are the parts of bandwidth, matmul rate and attention rate that an engine gets.
    Overheads in seconds: `step_overhead` of the host per forward, `row_overhead` of the host per sequence in it,
    `layer_overhead` of the device per layer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str
    description: str = ""
    memory: Memory
    reserve: Bytes = 0.0
    bandwidth: ByteRate
    flops: Mapping[str, FlopRate]
    link_bandwidth: ByteRate | None = None
    link_latency: Seconds = 0.0
    bandwidth_efficiency: Fraction
    matmul_efficiency: Fraction
    attention_efficiency: Fraction
    step_overhead: Seconds = 0.0
    row_overhead: Seconds = 0.0
    layer_overhead: Seconds = 0.0

    @field_validator("flops")
    @classmethod
    def _known_formats(cls, flops: Mapping[str, float]) -> Mapping[str, float]:
        named = {canonical(name): rate for name, rate in flops.items()}
        if "bfloat16" not in named:
            raise ValueError("the rate of bfloat16 is required")
        return named

    def rate(self, dtype: str) -> float:
        """Dense FLOP/s of matrix products with weights in `dtype`. A format without a rate of its own computes in
        bfloat16 (weight-only quantisation), float16 too."""
        return self.flops.get(canonical(dtype), self.flops["bfloat16"])


def hardware_presets() -> list[str]:
    """Names of the bundled devices."""
    return sorted(path.stem.removeprefix(PREFIX) for path in HERE.glob(f"{PREFIX}*.yaml"))


def load_hardware(name_or_path: str, base: Path | None = None) -> Hardware:
    """A bundled device or a YAML file of one's own (relative to `base`). Raises HardwareError with the reason."""
    if name_or_path in hardware_presets():
        return _read(HERE / f"{PREFIX}{name_or_path}.yaml")
    path = existing(name_or_path, base)
    if path is None or path.is_dir():
        raise HardwareError(unknown("hardware", name_or_path, hardware_presets(), "the path of a YAML file"))
    return _read(path)


def _read(path: Path) -> Hardware:
    try:
        keys = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise HardwareError(f"{path}: not a YAML file: {error}") from None
    if not isinstance(keys, dict):
        raise HardwareError(f"{path}: a hardware file is a list of keys and values")
    try:
        return Hardware.model_validate({"name": path.stem.removeprefix(PREFIX), **keys})
    except ValidationError as error:
        raise HardwareError(f"{path}: {_told(error)}") from None


def _told(error: ValidationError) -> str:
    """Every problem of a file in one line."""
    return "; ".join(_problem(dict(found)) for found in error.errors())


def _problem(found: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in found["loc"])
    if found["type"] == "extra_forbidden":
        return f"unknown key '{key}' (known: {', '.join(Hardware.model_fields)})"
    message = str(found["msg"]).removeprefix("Value error, ")
    return f"'{key}': {message}"
