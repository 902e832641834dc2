"""What a claim comes to in one cell: whether it holds, with the measured sides as people read them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .errors import UserError, shown
from .overrides import lookup
from .statement_nodes import (
    Binary,
    Claim,
    Comparison,
    Expression,
    Key,
    Measure,
    Negative,
    Number,
    Predicate,
    Range,
    expressions,
    leaves,
)
from .statement_words import TIMES
from .statements import Configs, Facts, Statement, is_number, ordered
from .units import TIME_UNITS, number_text, time_text

HOLDS, FAILS, NO_DATA = "holds", "fails", "no data"
DIGITS = (4, 6, 9, 12, 17)
"""Significant digits to try until what is shown compares as the numbers do."""


@dataclass(frozen=True, slots=True)
class Measured:
    """`outcome`: one of `HOLDS`, `FAILS`, `NO_DATA`. `text` as in `9.12 in [7, 10]`; `values` of its sides in order."""

    outcome: str
    text: str
    values: tuple[float, ...] = ()


class NoValue(UserError):
    """A side of a claim has no value; the text says why."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One cell: its measured facts, the configuration of its variants, and why runs of it did not complete."""

    facts: Facts
    configs: Configs
    problems: Mapping[str, str]

    def measure(self, statement: Statement) -> Measured:
        """Never raises for what was measured: no data and a division by zero are an outcome."""
        claim = statement.claim
        if isinstance(claim, Predicate):
            return self._predicate(claim)
        try:
            values = tuple(self.number(side, statement.variants) for side in expressions(claim))
        except NoValue as error:
            return Measured(NO_DATA, str(error))
        return Measured(HOLDS if _true(claim, values) else FAILS, written(claim, values), values)

    def _predicate(self, claim: Predicate) -> Measured:
        if claim.name == "completed":
            problem = self.problems.get(claim.variants[0])
            true, text = problem is None, "completed" if problem is None else problem
        else:
            difference = self.facts.difference(*claim.variants)
            true, text = difference is None, "equal" if difference is None else str(difference)
        return Measured(HOLDS if true != claim.negated else FAILS, text)

    def number(self, expression: Expression, variants: Iterable[str]) -> float:
        """Raises `NoValue`."""
        match expression:
            case Number():
                return expression.value
            case Measure():
                return self._read(expression)
            case Key():
                return _number_at(self.configs[next(iter(variants))], expression.path)
            case Negative():
                return -self.number(expression.operand, variants)
        left, right = (self.number(side, variants) for side in (expression.left, expression.right))
        return _finite(_calculated(expression.operator, left, right))

    def _read(self, measure: Measure) -> float:
        value = float(self.facts.value(measure.function, measure.column, measure.variant))
        if math.isfinite(value):
            return value
        raise NoValue(f"no data for {_call(measure)}")


def _call(measure: Measure) -> str:
    return f"{measure.function}({', '.join(part for part in (measure.column, measure.variant) if part)})"


def _number_at(config: Mapping[str, object], path: str) -> float:
    value = lookup(config, path)
    if is_number(value):
        return float(value)
    raise NoValue(f"{path} is {shown(value)}, which is no number")


def _calculated(operator: str, left: float, right: float) -> float:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    if right == 0:
        raise NoValue(f"division by zero: {number_text(left)} / 0")
    return left / right


def _finite(value: float) -> float:
    if math.isfinite(value):
        return value
    raise NoValue("too large a number")


def _true(claim: Claim, values: tuple[float, ...]) -> bool:
    if isinstance(claim, Comparison):
        if claim.tolerance is not None:
            return abs(values[0] - values[1]) <= _allowance(claim.tolerance, values[1])
        return all(ordered(operator, *values[index : index + 2]) for index, operator in enumerate(claim.operators))
    return values[1] <= values[0] <= values[2]


def _allowance(tolerance: Number, right: float) -> float:
    return tolerance.value * abs(right) if tolerance.unit == "%" else tolerance.value


def written(claim: Claim, values: tuple[float, ...]) -> str:
    """The claim with its measured sides, with as many digits as it takes to see that it holds or fails."""
    sides = expressions(claim)
    time = any(map(_is_time, sides))
    for digits in DIGITS:
        rounded = tuple(_rounded(side, value, digits) for side, value in zip(sides, values, strict=True))
        if _true(claim, rounded) == _true(claim, values):
            break
    texts = [_side(side, value, digits, time) for side, value in zip(sides, values, strict=True)]
    if isinstance(claim, Range):
        return f"{texts[0]} in [{texts[1]}, {texts[2]}]"
    assert isinstance(claim, Comparison)
    joined = " ".join([texts[0], *(word for pair in zip(claim.operators, texts[1:], strict=True) for word in pair)])
    return joined if claim.tolerance is None else f"{joined} within {claim.tolerance.text}"


def _side(side: Expression, value: float, digits: int, time: bool) -> str:
    if isinstance(side, Number):
        return side.text
    return time_text(value, digits) if time else number_text(value, digits)


def _rounded(side: Expression, value: float, digits: int) -> float:
    return value if isinstance(side, Number) else float(number_text(value, digits))


def _is_time(side: Expression) -> bool:
    """Whether a side is seconds: times over times and numbers are not."""
    match side:
        case Number():
            return side.unit in TIME_UNITS
        case Measure():
            return (side.column or side.function) in TIMES
        case Negative():
            return _is_time(side.operand)
        case Binary(operator="/"):
            return _is_time(side.left) and not _is_time(side.right)
        case Binary():
            return any(_is_time(leaf) for leaf in leaves(side) if not isinstance(leaf, Key))
    return False
