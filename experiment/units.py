"""Times and memory sizes with units, as people write them into an experiment."""

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from .errors import TIME_HINT, UserError

TIME_UNITS: Mapping[str, Decimal] = {
    "ns": Decimal("1e-9"), "us": Decimal("1e-6"), "µs": Decimal("1e-6"), "μs": Decimal("1e-6"), "ms": Decimal("1e-3"),
    "s": Decimal(1), "min": Decimal(60), "h": Decimal(3600),
}
MEMORY_UNITS: Mapping[str, Decimal] = {
    "KB": Decimal(10**3), "MB": Decimal(10**6), "GB": Decimal(10**9), "TB": Decimal(10**12),
    "KiB": Decimal(2**10), "MiB": Decimal(2**20), "GiB": Decimal(2**30), "TiB": Decimal(2**40),
}
NUMBER = r"(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?"
WITH_SECTIONS = ("engine", "latency", "workload")
"""The sections of an experiment in which a text such as `2.9ms` or `24GiB` is a quantity."""
TEXT_KEYS = frozenset({"file", "format", "kind", "name", "path"})
"""Keys whose value stays a text, whatever it looks like."""

_QUANTITY = re.compile(rf"([-+]?{NUMBER})\s*({'|'.join([*TIME_UNITS, *MEMORY_UNITS])})")


def seconds(text: str) -> float:
    """`2.9ms` -> 0.0029, correctly rounded. Raises `UserError` on anything but a number and a unit of time."""
    value = _quantity(text, TIME_UNITS)
    if value is None:
        raise UserError(f"{text!r} is no time: {TIME_HINT}")
    return float(value)


def memory(text: str) -> int:
    """`24GiB` -> bytes. Raises `UserError` on anything but a number and a unit of memory."""
    value = _quantity(text, MEMORY_UNITS)
    if value is None:
        raise UserError(f"{text!r} is no memory size: sizes are written with {', '.join(MEMORY_UNITS)}")
    return int(value)


def time_text(value: float, digits: int = 4) -> str:
    """Seconds for people: `0.0029` -> `2.9ms`; plain seconds from one second on."""
    for unit in ("ns", "us", "ms"):
        factor = float(TIME_UNITS[unit])
        if 0 < abs(value) < factor * 1000:
            return f"{number_text(value / factor, digits)}{unit}"
    return f"{number_text(value, digits)}s"


def number_text(value: float, digits: int = 4) -> str:
    """All digits of a whole number, `digits` significant ones of another, and no exponent where people avoid one."""
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if 1000 <= abs(value) < 1e15:
        return f"{value:.{max(digits - 1 - int(math.log10(abs(value))), 1)}f}"
    return f"{value:.{digits}g}"


def with_units(value: Any) -> Any:
    """The value with every text that is a quantity turned into seconds (float) or bytes (int), at any depth."""
    if isinstance(value, dict):
        return {key: inner if _is_text(key, inner) else with_units(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_units(inner) for inner in value]
    return _converted(value) if isinstance(value, str) else value


def _is_text(key: object, value: object) -> bool:
    return key in TEXT_KEYS and isinstance(value, str)


def _converted(text: str) -> str | float | int:
    if (time := _quantity(text, TIME_UNITS)) is not None:
        return float(time)
    size = _quantity(text, MEMORY_UNITS)
    return text if size is None else int(size)


def _quantity(text: str, units: Mapping[str, Decimal]) -> Decimal | None:
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or found[2] not in units:
        return None
    return Decimal(found[1].replace("_", "")) * units[found[2]]
