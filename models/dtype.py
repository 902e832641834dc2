"""Number formats of weights and KV caches."""

from collections.abc import Mapping
from types import MappingProxyType

BITS: Mapping[str, float] = MappingProxyType({
    "float32": 32, "float16": 16, "bfloat16": 16, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4,
})
ALIASES: Mapping[str, str] = MappingProxyType({
    "fp32": "float32", "float": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16",
    "float8": "fp8", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8",
    "mxfp4": "fp4", "nvfp4": "fp4",
})


def canonical(name: str) -> str:
    """The one name of a number format (`bf16` and `torch.bfloat16` are `bfloat16`). ValueError where it is unknown."""
    plain = name.lower().removeprefix("torch.")
    plain = ALIASES.get(plain, plain)
    if plain not in BITS:
        raise ValueError(f"'{name}' is not a known number format; known: {', '.join([*BITS, *ALIASES])}")
    return plain


def bytes_of(name: str) -> float:
    """Bytes per number. The scales of quantised formats (about 3 % at 4 bits) are not counted."""
    return BITS[canonical(name)] / 8
