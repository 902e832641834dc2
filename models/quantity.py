"""Numbers with units, as people write them: `80GB`, `3.35 TB/s`, `989 TFLOP/s`, `16.1us`."""

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType

PREFIXES: Mapping[str, Decimal] = MappingProxyType({
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "µ": Decimal("1e-6"), "μ": Decimal("1e-6"), "m": Decimal("1e-3"),
    "": Decimal(1), "k": Decimal(1000), "K": Decimal(1000), "M": Decimal("1e6"), "G": Decimal("1e9"),
    "T": Decimal("1e12"), "P": Decimal("1e15"),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
})
NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*)")
EXAMPLES: Mapping[str, str] = MappingProxyType({"B": "80GB", "B/s": "3.35TB/s", "FLOP/s": "989TFLOP/s", "s": "16.1us"})


def parse_quantity(value: object, unit: str) -> float:
    """A number in `unit` (B, B/s, FLOP/s or s) from a number or a text; `2.9ms` is exactly the float 0.0029.

    ValueError says what is allowed.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    match = NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
    scale = _scale(match[2], unit) if match else None
    number = float(Decimal(match[1]) * scale) if match and scale else math.inf
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a quantity in {unit}: write a number, or one with its unit, such as "
                         f"{EXAMPLES[unit]}")
    return number


def _scale(text: str, unit: str) -> Decimal | None:
    if not text:
        return Decimal(1)
    return PREFIXES.get(text.removesuffix(unit)) if text.endswith(unit) else None


def show(value: float, unit: str, digits: int = 4) -> str:
    """A readable text of a quantity: `16.1 us`, `78.2 GB` (decimal prefixes)."""
    prefixes = "PTGMk" if abs(value) >= 1 else "mun" if value and unit == "s" else ""
    prefix = next((p for p in prefixes if abs(value) >= PREFIXES[p]), "")
    return f"{value / float(PREFIXES[prefix]):.{digits}g} {prefix}{unit}"
