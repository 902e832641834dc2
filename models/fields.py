"""Types of config fields that take a number or a text with its unit."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from .quantity import parse_quantity


def in_unit(unit: str) -> BeforeValidator:
    return BeforeValidator(lambda value: parse_quantity(value, unit))


Bytes = Annotated[float, in_unit("B"), Field(ge=0)]
Memory = Annotated[float, in_unit("B"), Field(gt=0)]
ByteRate = Annotated[float, in_unit("B/s"), Field(gt=0)]
FlopRate = Annotated[float, in_unit("FLOP/s"), Field(gt=0)]
Seconds = Annotated[float, in_unit("s"), Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]
