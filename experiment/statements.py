"""The statements of an experiment, checked against its variants and its configuration before anything runs.

A statement is `claim [where condition and condition ...]`; `statement_parser` has the grammar. Numbers may be `5%`
(0.05) or times (`50ms`, in seconds). In a claim `x in [low, high]` is a range with both ends; behind `where`
`key in [a, b]` means one of these values. A bare dotted key in a claim is the number that the cell's configuration has
there. Keys are looked up in the configuration of the variants that the claim names, after the sweep.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .errors import Place, UserError, suggestion
from .overrides import has, lookup
from .shape import Because, Shape
from .statement_nodes import Claim, Condition
from .statement_parser import Parser
from .statement_tokens import StatementError
from .statement_words import FUNCTIONS, usage

KINDS = ("control", "expect", "note")
"""`control` must hold, `expect` can be refuted, `note` is observed outside the verdict."""

Configs = Mapping[str, Mapping[str, Any]]
"""The configuration of each variant in one cell."""


class Facts(Protocol):
    """What was measured in one cell: the only thing that statements know of runs."""

    def value(self, function: str, column: str | None, variant: str) -> float:
        """`mean(column, variant)` and the other functions of `statement_words`; NaN where there is no data."""

    def difference(self, first: str, second: str) -> object | None:
        """None where two variants decided alike at every step; else what says where they part, in its `str()`."""


@dataclass(frozen=True, slots=True)
class Statement:
    """The `variants` it names, and the `keys` that a cell must have for it to speak of that cell, with their places."""

    text: str
    claim: Claim
    conditions: tuple[Condition, ...]
    variants: Mapping[str, int]
    keys: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """A statement of the file: its section (one of `KINDS`), its dotted key, and what people are told beside it."""

    kind: str
    key: str
    statement: Statement
    because: str | None = None


def parse_statement(text: str) -> Statement:
    """Raises `StatementError` with the text, the place in it, and what is allowed there."""
    parser = Parser(text)
    claim, conditions = parser.statement()
    if not parser.variants:
        raise StatementError(text, 0, f"reads nothing that a run measures, as {usage('mean')} or {usage('throughput')} "
                                      f"would; functions: {', '.join(FUNCTIONS)}")
    return Statement(text, claim, conditions, parser.variants, parser.keys)


def entries_of(shape: Shape, place: Place) -> tuple[Entry, ...]:
    """All statements of an experiment. Raises `UserError` with one line per statement that cannot be understood."""
    result: list[Entry] = []
    problems: list[str] = []
    for kind in KINDS:
        for index, written in enumerate(getattr(shape, kind)):
            key = f"{kind}.{index}"
            try:
                result.append(_entry(kind, key, written))
            except StatementError as error:
                problems.append(f"{place.where(key)}: {error}")
    if problems:
        raise UserError("\n".join(problems))
    return tuple(result)


def _entry(kind: str, key: str, written: str | Because) -> Entry:
    text, because = (written, None) if isinstance(written, str) else (written.that, written.because)
    return Entry(kind, key, parse_statement(text), because)


def check(statement: Statement, variants: Sequence[str], cells: Sequence[Configs]) -> None:
    """Raises `StatementError` on a variant that there is not, a key that no cell has or that the named variants differ
    in, and where no cell matches, so that the statement would say nothing."""
    for variant, position in statement.variants.items():
        if variant not in variants:
            known = suggestion(variant, variants, "variants")
            raise StatementError(statement.text, position, f"no variant {variant!r}; {known}")
    for key, position in statement.keys.items():
        _check_key(statement, key, position, cells)
    if not any(matches(statement, cell) for cell in cells):
        position = min(statement.keys.values(), default=0)
        raise StatementError(statement.text, position, f"no cell matches; {_seen(statement, cells)}")


def _check_key(statement: Statement, key: str, position: int, cells: Sequence[Configs]) -> None:
    named = [[cell[variant] for variant in statement.variants if variant in cell] for cell in cells]
    if not any(has(config, key) for configs in named for config in configs):
        known = sorted({path for configs in named for config in configs for path in dotted(config)})
        raise StatementError(statement.text, position, f"no cell has a key {key!r}; {_near(key, known)}")
    for configs in named:
        values = [lookup(config, key) for config in configs if has(config, key)]
        if any(not same(value, values[0]) for value in values):
            problem = f"the variants {', '.join(statement.variants)} differ in {key}; a key must mean one value for all"
            raise StatementError(statement.text, position, f"{problem} that a statement names")


def _near(key: str, known: list[str]) -> str:
    ending = [path for path in known if path.endswith(f".{key}")]
    return f"did you mean {' or '.join(ending)}?" if ending else suggestion(key, known, "keys")


def _seen(statement: Statement, cells: Sequence[Configs]) -> str:
    """What the keys of the conditions are in the cells."""
    texts = []
    for key in dict.fromkeys(condition.key for condition in statement.conditions):
        values = [lookup(config, key) for cell in cells for config in cell.values() if has(config, key)]
        texts.append(f"{key} is {' or '.join(dict.fromkeys(str(value) for value in values))}")
    return "; ".join(texts) or "there are no cells"


def dotted(config: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    """Every dotted key of a configuration."""
    for key, value in config.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{key}.")


def matches(statement: Statement, cell: Configs) -> bool:
    """Whether a statement speaks of a cell: it has every key that the statement names, and the conditions hold."""
    configs = [cell[variant] for variant in statement.variants if variant in cell] or list(cell.values())
    if not configs or not all(has(config, key) for config in configs for key in statement.keys):
        return False
    return all(_holds(each, lookup(config, each.key)) for each in statement.conditions for config in configs)


def _holds(condition: Condition, value: Any) -> bool:
    wanted = condition.value
    match condition.operator:
        case "==":
            return same(value, wanted)
        case "!=":
            return not same(value, wanted)
        case "in":
            return any(same(value, each) for each in wanted)
    return is_number(value) and ordered(condition.operator, value, wanted)


def ordered(operator: str, left: float, right: float) -> bool:
    """One comparison of two numbers."""
    match operator:
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right
        case "==":
            return left == right
    return left != right


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(left: Any, right: Any) -> bool:
    """Equality in which true is not 1, at any depth of lists; numbers are equal whatever their type."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right, strict=True))
    if is_number(left) and is_number(right):
        return bool(left == right)
    return type(left) is type(right) and bool(left == right)
