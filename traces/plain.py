"""Facts as plain data, for JSON."""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Dicts, lists, text, numbers, booleans and None only. A number that is not finite becomes None.

    Raises TypeError on what has no such form.
    """
    match value:
        case None | bool() | int() | str() if not isinstance(value, Enum):
            return value
        case float():
            return float(value) if math.isfinite(value) else None
        case Enum():
            return plain(value.value)
        case PurePath():
            return str(value)
        case np.generic() | np.ndarray():
            return plain(value.tolist())
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"no plain form of {type(value).__name__}: {value!r}")
