"""The grammar of statements, by recursive descent.

    statement  = claim ["where" condition {"and" condition}]
    claim      = ["not"] predicate | range | comparison
    range      = sum "in" "[" sum "," sum "]"
    comparison = sum comparator sum {comparator sum} ["within" number]
    predicate  = "equal_steps" "(" variant "," variant ")" | "completed" "(" variant ")"
    sum        = product {("+" | "-") product}            product = factor {("*" | "/") factor}
    factor     = number | key | function "(" [column ","] variant ")" | "-" factor | "(" sum ")"
    condition  = key (comparator literal | "in" "[" literal {"," literal} "]")
    literal    = number | text | word | "[" [literal {"," literal}] "]"
"""

from collections.abc import Callable
from typing import Any

from .errors import suggestion
from .statement_nodes import (
    Binary,
    Claim,
    Comparison,
    Condition,
    Expression,
    Key,
    Measure,
    Negative,
    Number,
    Predicate,
    Range,
)
from .statement_tokens import StatementError, Token, tokens
from .statement_words import FUNCTIONS, PREDICATES, TOTALS, readable, usage

COMPARATORS = ("<", "<=", ">", ">=", "==", "!=")
DEEPEST = 40
"""Parentheses within parentheses."""
WORDS = {"true": True, "false": False, "null": None}


class Parser:
    """One pass over the tokens of one statement. `variants` and `keys` that it names, with their first positions."""

    def __init__(self, text: str) -> None:
        self.variants: dict[str, int] = {}
        self.keys: dict[str, int] = {}
        self._text = text
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0

    def statement(self) -> tuple[Claim, tuple[Condition, ...]]:
        claim = self._claim()
        conditions = [self._condition()] if self._take("where") else []
        while conditions and self._take("and"):
            conditions.append(self._condition())
        if self._now.kind != "end":
            raise self._unexpected()
        return claim, tuple(conditions)

    def _claim(self) -> Claim:
        negated = self._take("not") is not None
        if negated or (self._now.kind == "name" and self._now.text in PREDICATES):
            return self._predicate(negated)
        first = self._sum()
        if self._take("in"):
            return self._range(first)
        return self._comparison(first)

    def _predicate(self, negated: bool) -> Predicate:
        name = self._need("name", f"one of {', '.join(PREDICATES)}")
        if name.text not in PREDICATES:
            raise self._wrong(name, f"not turns a predicate around; {suggestion(name.text, PREDICATES)}")
        self._need("(", f"{usage(name.text)}")
        variants = [self._variant(name.text)]
        while len(variants) < PREDICATES[name.text]:
            self._need(",", usage(name.text))
            variants.append(self._variant(name.text))
        self._need(")", usage(name.text))
        return Predicate(name.text, tuple(variants), negated)

    def _range(self, value: Expression) -> Range:
        opening = self._need("[", "a range such as [7, 10]")
        low = self._sum()
        self._need(",", "a range such as [7, 10]")
        high = self._sum()
        self._need("]", "a range such as [7, 10]")
        if isinstance(low, Number) and isinstance(high, Number) and low.value > high.value:
            raise self._wrong(opening, f"nothing is in [{low.text}, {high.text}]; the smaller end comes first")
        return Range(value, low, high)

    def _comparison(self, first: Expression) -> Comparison:
        operands, operators = [first], []
        while self._now.kind in COMPARATORS:
            operators.append(self._next().kind)
            operands.append(self._sum())
        if not operators:
            raise self._wrong(self._now, f"found {self._now} where a comparison must stand: {' '.join(COMPARATORS)} or "
                                         "in [low, high]")
        return Comparison(tuple(operands), tuple(operators), self._tolerance(operators))

    def _tolerance(self, operators: list[str]) -> Number | None:
        within = self._take("within")
        if within is None:
            return None
        if operators != ["=="]:
            raise self._wrong(within, "within belongs to a single ==")
        number = self._need("number", "a tolerance such as 5% (of the right side) or 2ms (absolute)")
        return Number(number.text, number.value, number.unit)

    def _sum(self) -> Expression:
        return self._chain(("+", "-"), self._product)

    def _product(self) -> Expression:
        return self._chain(("*", "/"), self._factor)

    def _chain(self, operators: tuple[str, ...], operand: Callable[[], Expression]) -> Expression:
        result = operand()
        while self._now.kind in operators:
            operator = self._next().kind
            result = Binary(operator, result, operand())
        return result

    def _factor(self) -> Expression:
        token = self._next()
        if token.kind == "number":
            return Number(token.text, token.value, token.unit)
        if token.kind == "name":
            return self._measure(token) if self._take("(") else self._key(token)
        if token.kind not in ("-", "("):
            raise self._wrong(token, f"found {token} where a number, a function or a key must stand")
        return self._nested(token)

    def _nested(self, opening: Token) -> Expression:
        self._deeper(opening)
        inner: Expression = Negative(self._factor()) if opening.kind == "-" else self._sum()
        if opening.kind == "(":
            self._need(")", "the closing parenthesis")
        self._depth -= 1
        return inner

    def _deeper(self, opening: Token) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._wrong(opening, f"nested more than {DEEPEST} deep")

    def _key(self, token: Token) -> Key:
        if token.text in FUNCTIONS:
            raise self._wrong(token, f"{token.text} is a function: write {usage(token.text)}")
        if token.text in readable("mean"):
            raise self._wrong(token, f"{token.text} needs a function and a variant: write mean({token.text}, variant)")
        self.keys.setdefault(token.text, token.position)
        return Key(token.text)

    def _measure(self, token: Token) -> Measure:
        name = token.text
        if name in PREDICATES:
            raise self._wrong(token, f"{name} is true or false, no number; it stands alone before where")
        if name not in FUNCTIONS:
            raise self._wrong(token, f"no function {name!r}; {suggestion(name, FUNCTIONS, 'functions')}")
        column = None if name in TOTALS else self._column(name)
        variant = self._variant(name)
        self._need(")", usage(name))
        return Measure(name, column, variant)

    def _column(self, function: str) -> str:
        token = self._need("name", usage(function))
        if token.text not in readable(function):
            raise self._wrong(token, f"{function} reads no column {token.text!r}; "
                                     f"{suggestion(token.text, readable(function), 'columns')}")
        self._need(",", usage(function))
        return token.text

    def _variant(self, function: str) -> str:
        token = self._next()
        if token.kind not in ("name", "text"):
            raise self._wrong(token, f"found {token} where the name of a variant must stand: {usage(function)}")
        if token.kind == "name" and self._now.kind not in (",", ")"):
            raise self._wrong(self._now, f"found {self._now} in {usage(function)}; a variant whose name is no plain "
                                         "word is put in quotes: 'my-variant'")
        self.variants.setdefault(token.text, token.position)
        return token.text

    def _condition(self) -> Condition:
        key = self._need("name", "a dotted key such as workload.count")
        self.keys.setdefault(key.text, key.position)
        if self._take("in"):
            return Condition(key.text, "in", self._list())
        if self._now.kind not in COMPARATORS:
            raise self._wrong(self._now, f"found {self._now} after {key.text}; a condition is "
                                         f"{' '.join(COMPARATORS)} or in [...]")
        operator = self._next()
        value = self._literal()
        if operator.kind not in ("==", "!=") and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise self._wrong(operator, f"{operator.kind} needs a number on its right")
        return Condition(key.text, operator.kind, value)

    def _list(self) -> list[Any]:
        self._deeper(self._need("[", "a list such as [1, 8, 32]"))
        items = [] if self._now.kind == "]" else [self._literal()]
        while items and self._take(","):
            items.append(self._literal())
        self._need("]", "the closing bracket")
        self._depth -= 1
        return items

    def _literal(self) -> Any:
        if self._now.kind == "[":
            return self._list()
        sign = -1 if self._take("-") else 1
        token = self._next()
        if token.kind == "number":
            whole = not token.unit and token.text.replace("_", "").isdigit()
            return sign * (int(token.text.replace("_", "")) if whole else token.value)
        if token.kind not in ("name", "text") or sign < 0:
            raise self._wrong(token, f"found {token} where a value must stand: a number, a text or a list")
        return WORDS.get(token.text, token.text) if token.kind == "name" else token.text

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._now
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _take(self, kind: str) -> Token | None:
        return self._next() if self._now.kind == kind else None

    def _need(self, kind: str, wanted: str) -> Token:
        token = self._next()
        if token.kind != kind:
            raise self._wrong(token, f"found {token} where {wanted} must stand")
        return token

    def _unexpected(self) -> StatementError:
        token = self._now
        if token.kind in ("and", "or"):
            return self._wrong(token, f"{token.text} joins no statements: write two, one per line "
                                      "(and joins conditions after where)")
        return self._wrong(token, f"found {token} where the end or 'where' must stand")

    def _wrong(self, token: Token, problem: str) -> StatementError:
        return StatementError(self._text, token.position, problem)
