"""What a statement consists of."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written: `unit` is '', '%' or a unit of time; `value` is then a fraction or seconds."""

    text: str
    value: float
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Key:
    """A number from the configuration of the cell, by its dotted key."""

    path: str


@dataclass(frozen=True, slots=True)
class Measure:
    """A number measured in the run of a variant; `column` where the function reads one."""

    function: str
    column: str | None
    variant: str


@dataclass(frozen=True, slots=True)
class Negative:
    operand: "Expression"


@dataclass(frozen=True, slots=True)
class Binary:
    """`operator` is one of + - * /."""

    operator: str
    left: "Expression"
    right: "Expression"


Expression = Number | Key | Measure | Negative | Binary


@dataclass(frozen=True, slots=True)
class Comparison:
    """`a < b <= c`. With a `tolerance` (of one `==`): relative to the right side if in %, else absolute."""

    operands: tuple[Expression, ...]
    operators: tuple[str, ...]
    tolerance: Number | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """`value in [low, high]`, both ends included."""

    value: Expression
    low: Expression
    high: Expression


@dataclass(frozen=True, slots=True)
class Predicate:
    """`equal_steps(a, b)` or `completed(a)`, or `not` one of them."""

    name: str
    variants: tuple[str, ...]
    negated: bool = False


Claim = Comparison | Range | Predicate


@dataclass(frozen=True, slots=True)
class Condition:
    """`key operator value` behind `where`; `in` means one of a list."""

    key: str
    operator: str
    value: Any


def expressions(claim: Claim) -> tuple[Expression, ...]:
    """The sides of a claim."""
    match claim:
        case Comparison():
            return claim.operands
        case Range():
            return (claim.value, claim.low, claim.high)
        case Predicate():
            return ()


def leaves(expression: Expression) -> Iterator[Number | Key | Measure]:
    match expression:
        case Negative():
            yield from leaves(expression.operand)
        case Binary():
            yield from leaves(expression.left)
            yield from leaves(expression.right)
        case _:
            yield expression
