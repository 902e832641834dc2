"""Numbers in columns that are never cut: what does not fit the width goes into a further table."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

GAP = 2
NARROW = 26
"""A label is folded rather than a column moved down, but not below this width."""

Row = tuple[str, Sequence[str]]
"""A label and its cells."""


@dataclass(frozen=True, slots=True)
class Group:
    """Rows under a title of their own ('' for none)."""

    title: str
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Grid:
    """Groups of rows under named columns; every row has a cell for each name."""

    title: str
    names: Sequence[str]
    groups: Sequence[Group]


def print_grid(console: Console, grid: Grid) -> None:
    """One table, or several with the same rows where the columns need more than the console's width."""
    rows = [row for group in grid.groups for row in group.rows]
    widths = [GAP + _longest(texts) for texts in zip(grid.names, *(cells for _, cells in rows), strict=True)]
    label = _longest(label for label, _ in rows)
    least = min(label, NARROW)
    console.print(Text(grid.title, "bold"), soft_wrap=True)
    for part in _parts(widths, console.width - least):
        room = max(least, console.width - sum(widths[part]))
        _print_part(console, grid, widths, part, min(label, room))


def _print_part(console: Console, grid: Grid, widths: Sequence[int], part: slice, room: int) -> None:
    console.print(Text(_line("", grid.names[part], widths[part], room), "dim"), soft_wrap=True)
    for group in grid.groups:
        if group.title:
            console.print(Text(group.title, "cyan"), soft_wrap=True)
        for label, cells in group.rows:
            first, *rest = wrap(label, room, subsequent_indent="  ") or [""]
            lines = [_line(first, cells[part], widths[part], room), *rest]
            console.print(Text("\n".join(lines)), soft_wrap=True)


def _line(label: str, cells: Sequence[str], widths: Sequence[int], room: int) -> str:
    aligned = (" " * (width - cell_len(text)) + text for text, width in zip(cells, widths, strict=True))
    return label + " " * (room - cell_len(label)) + "".join(aligned)


def _parts(widths: Sequence[int], room: int) -> Iterator[slice]:
    """Columns that fit beside each other, at least one at a time."""
    start = used = 0
    for place, width in enumerate(widths):
        if place > start and used + width > room:
            yield slice(start, place)
            start, used = place, 0
        used += width
    yield slice(start, len(widths))


def _longest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)
