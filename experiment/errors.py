"""Messages about what a user wrote: where it stands, what was found, what is allowed."""

import difflib
import json
from collections.abc import Iterable
from typing import Protocol

SHOWN = 60
"""Characters of a found value that a message repeats."""

QUOTE_HINT = "YAML reads a bare on, off, yes or no as a boolean: write the word in quotes"
TIME_HINT = "times are written 2.9ms, 16.1us, 0.5s or 3min"


class UserError(ValueError):
    """Something the user wrote cannot be used. Its text is the whole message."""


class Place(Protocol):
    """Whatever can say where a dotted key stands, as `my.yaml:12: engine.num_blocks`."""

    def where(self, key: str) -> str: ...


def close(word: str, allowed: Iterable[object]) -> list[str]:
    """Up to three of `allowed` that `word` may have been meant as."""
    return difflib.get_close_matches(word, [str(name) for name in allowed], n=3, cutoff=0.6)


def suggestion(word: str, allowed: Iterable[object], noun: str = "allowed") -> str:
    """`did you mean x? allowed: x, y, z`, as much of it as there is."""
    names = [str(name) for name in allowed]
    found = close(word, names)
    meant = f"did you mean {' or '.join(found)}? " if found else ""
    return f"{meant}{noun}: {', '.join(names) or 'none'}"


def shown(value: object) -> str:
    """A value as a user would write it, cut to a readable length."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
