"""Numbers out of the fields of a trace file, with a reason where a field is none."""

from math import isnan
from typing import Any

from .strict import MOST_TOKENS

LARGEST = 1e18
"""Keeps whole numbers within 64 bits."""


def whole_number(field: Any) -> int:
    """A whole number, as text or as a number; a whole float (12.0) is one. Raises ValueError with the reason."""
    number = _number(field)
    if number != int(number):
        raise ValueError("is not a whole number")
    return int(number)


def token_count(field: Any) -> int:
    """A number of tokens, at least 0. Raises ValueError with the reason."""
    count = whole_number(field)
    if not 0 <= count <= MOST_TOKENS:
        raise ValueError("is negative" if count < 0 else f"is more than {MOST_TOKENS:,} tokens")
    return count


def seconds(field: Any) -> float:
    """A time as text or as a number. Raises ValueError with the reason."""
    return float(_number(field))


def _number(field: Any) -> int | float:
    number = _parsed(field.strip()) if isinstance(field, str) else field
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError("is missing" if number is None else "is not a number")
    if abs(number) > LARGEST:
        raise ValueError("is too large")
    if isnan(number):
        raise ValueError("is not a number")
    return number


def _parsed(text: str) -> int | float:
    if text.isdecimal() and text.isascii() and len(text) < 20:
        return int(text)
    try:
        number = float(text)
    except ValueError:
        raise ValueError("is not a number" if text else "is missing") from None
    if "_" in text:
        raise ValueError("is not a number")
    return number
