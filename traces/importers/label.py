"""The bracket before a record, in which an engine says when it is and whose."""

import re
from typing import NamedTuple

BRACKET = re.compile(r"\[[\w .:,+-]{1,80}\]", re.ASCII)
STAMP = re.compile(r"(?:(?:\d{4}-)?\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?", re.ASCII)
NUMBERED = re.compile(r"\b([A-Z]+)(\d{1,9})\b", re.ASCII)


class Label(NamedTuple):
    """`numbers`: such as DP 0, TP 1."""

    stamp: str | None
    numbers: dict[str, int]


NO_LABEL = Label(None, {})


def label_before(line: str, place: int) -> Label | None:
    """Of the bracket that ends at `place`; `NO_LABEL` where there is none; None where its beginning is lost."""
    before = line[:place].rstrip()
    if not before.endswith("]"):
        return NO_LABEL
    bracket = BRACKET.fullmatch(before[max(before.rfind("["), 0):])
    if bracket is None:
        return None
    stamp = STAMP.search(bracket.group())
    numbers = {name: int(number) for name, number in NUMBERED.findall(bracket.group())}
    return Label(stamp.group() if stamp else None, numbers)
