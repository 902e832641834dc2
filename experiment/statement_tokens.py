"""A statement's text cut into tokens."""

import re
from dataclasses import dataclass

from .errors import UserError
from .statement_words import KEYWORDS
from .units import NUMBER, TIME_UNITS, seconds

_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(rf"(?P<number>{NUMBER})(?:[ ]?(?P<unit>%|(?:{'|'.join(TIME_UNITS)})(?![\w(])))?(?P<rest>[\w.]*)")
_NAME = re.compile(r"[^\W\d]\w*(?:\.\w+)*")
_TEXT = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_SYMBOL = re.compile(r"<=|>=|==|!=|[-+*/<>()\[\],]")


class StatementError(UserError):
    """A statement that cannot be understood; the message names its text and the place in it."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        super().__init__(f"{text!r}, character {position + 1}: {problem}")


@dataclass(frozen=True, slots=True)
class Token:
    """`kind`: 'number', 'name', 'text', 'end', or the symbol or keyword itself. `position` from 0."""

    kind: str
    text: str
    position: int
    value: float = 0.0
    unit: str = ""

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)


def tokens(text: str) -> list[Token]:
    """Raises `StatementError` at the first character that begins no token."""
    result: list[Token] = []
    position = _after_space(text, 0)
    while position < len(text):
        token, position = _next(text, position)
        result.append(token)
        position = _after_space(text, position)
    return [*result, Token("end", "", len(text))]


def _after_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _next(text: str, position: int) -> tuple[Token, int]:
    if found := _NUMBER.match(text, position):
        return _number(text, found), found.end()
    if found := _NAME.match(text, position):
        return Token(found[0] if found[0] in KEYWORDS else "name", found[0], position), found.end()
    if found := _TEXT.match(text, position):
        return Token("text", found[0][1:-1], position), found.end()
    if found := _SYMBOL.match(text, position):
        return Token(found[0], found[0], position), found.end()
    raise StatementError(text, position, _strange(text[position]))


def _strange(character: str) -> str:
    if character == "=":
        return "a single '='; equality is '=='"
    if character in "'\"":
        return "a quote that is never closed"
    return f"{character!r} means nothing here; a name with other characters is put in quotes"


def _number(text: str, found: re.Match[str]) -> Token:
    if found["rest"]:
        problem = f"{found[0]!r} is no number; the units are %, {', '.join(TIME_UNITS)}"
        raise StatementError(text, found.start("rest"), problem)
    unit = found["unit"] or ""
    written = found["number"].replace("_", "")
    value = seconds(written + unit) if unit in TIME_UNITS else float(written) / (100 if unit == "%" else 1)
    if value in (float("inf"), float("-inf")):
        raise StatementError(text, found.start(), f"{found[0]} is too large")
    return Token("number", found[0], found.start(), value, unit)
