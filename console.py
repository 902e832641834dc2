"""Where a person reads: the two consoles, JSON, plain tables, log lines."""

import json
import os
import sys
from collections.abc import Sequence
from textwrap import wrap

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from .traces.interval import LogLine, stamped

PIPED = 100
"""Columns where the output is no terminal and COLUMNS does not say."""
ENDLESS = 10_000
"""The same for lists, which stay one line each."""
NARROWEST = 20
"""Columns that a folded text has in any case."""


def stdout(piped: int = PIPED) -> Console:
    console = Console(highlight=False)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = piped
    return console


def stderr() -> Console:
    return Console(stderr=True, highlight=False)


def print_json(data: object) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def print_hanging(console: Console, head: str, text: str, style: str = "", body: str = "") -> None:
    """`head` in `style`, then `text` in the style `body`, folded beside it and never cut."""
    lines = wrap(text, max(console.width - cell_len(head), NARROWEST), break_on_hyphens=False) or [""]
    inside = Text(f"\n{' ' * cell_len(head)}".join(lines), body)
    console.print(Text(head, style) + inside, soft_wrap=True)


def print_log(lines: Sequence[LogLine], style: str, interval: float) -> None:
    """The engine's lines; the forward width, which no engine prints, stands behind each."""
    for line in lines:
        print(f"{stamped(line, style)}    [forward width {line.forward_width}]")
    if not lines:
        print(f"no line: the run has no tick of {interval:g} s with tokens before it (try --interval)", file=sys.stderr)


def print_lines(console: Console, lines: Sequence[Sequence[str]]) -> None:
    """Texts in aligned columns, the last one folded beside the others."""
    widths = [max(map(cell_len, texts)) + 2 for texts in zip(*lines, strict=True)]
    for *cells, last in lines:
        head = "".join(text + " " * (width - cell_len(text)) for text, width in zip(cells, widths, strict=False))
        print_hanging(console, head, last)
