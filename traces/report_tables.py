"""The tables of the report, as HTML; every text in them is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from .run_view import RunView
from .summary_text import number, summary_rows

GOOD = ("CONFIRMED", "HOLDS", "PASS", "TRUE", "DECISIONS IDENTICAL")
BAD = ("REFUTED", "INVALID", "FAILS", "FAIL", "FALSE", "DECISIONS DIFFERENT")
OVERVIEW_COLUMNS = (
    "cell", "variant", "tok/s", "running, mean", "forward width, mean", "waiting, mean", "TTFT p50 · p99, ms",
    "TPOT p50 · p99, ms", "preemptions",
)
STATEMENT_COLUMNS = ("kind", "text", "measured", "outcome")


def verdict_badge(verdict: str) -> str:
    return f'<span class="badge {_mood(verdict)}">{escape(verdict)}</span>' if verdict else ""


def statements_table(statements: Sequence[Mapping[str, Any]]) -> str:
    """Rows of `kind`, `text`, `measured`, `outcome`; nothing at all without statements."""
    if not statements:
        return ""
    rows = [[_text(row.get(column)) for column in STATEMENT_COLUMNS] for row in statements]
    body = "".join(
        f"<tr><td>{kind}</td><td><code>{text}</code></td><td>{measured}</td>"
        f'<td><span class="badge {_mood(outcome)}">{outcome}</span></td></tr>'
        for kind, text, measured, outcome in rows
    )
    return table(("", "statement", "measured", "outcome"), body, "statements")


def notes_list(notes: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


def cell_tables(cells: Mapping[str, Mapping[str, RunView]]) -> str:
    """The summaries of each cell, a variant a column."""
    return "\n".join(_cell_table(place, label, views) for place, (label, views) in enumerate(cells.items()))


def _cell_table(place: int, label: str, views: Mapping[str, RunView]) -> str:
    columns = [summary_rows(view.summary, view.untold) for view in views.values()]
    body = "".join(
        f'<tr><th scope="row">{escape(lines[0][0])}</th>{"".join(f"<td>{escape(text)}</td>" for _, text in lines)}</tr>'
        for lines in zip(*columns, strict=True)
    )
    heading = f"<h3>{escape(label)}</h3>" if label else ""
    return f'<div class="cell" data-cell="{place}">{heading}{table(("", *views), body, "summary")}</div>'


def overview_table(cells: Mapping[str, Mapping[str, RunView]]) -> str:
    """A line per cell and variant of a sweep, and the choice of a cell; nothing for a single cell."""
    if len(cells) < 2:
        return ""
    body = "".join(
        f'<tr data-choose="{place}"><td>{escape(label)}</td><td>{escape(name)}</td>{_overview(view)}</tr>'
        for place, (label, views) in enumerate(cells.items()) for name, view in views.items()
    )
    options = "".join(f'<option value="{place}">{escape(label)}</option>' for place, label in enumerate(cells))
    return (
        f'<section><h2>All cells</h2><p class="hint">Choose a row to see its cell.</p>'
        f'<div class="tall">{table(OVERVIEW_COLUMNS, body, "overview")}</div>'
        f'<p><label>Cell shown below <select id="cell">{options}</select></label></p></section>'
    )


def _overview(view: RunView) -> str:
    summary = view.summary
    means = (summary.throughput, summary.running.mean, summary.forward_width.mean, summary.waiting.mean)
    spreads = (f"{number(1e3 * s.p50)} · {number(1e3 * s.p99)}" for s in (summary.ttft, summary.tpot))
    texts = (*map(number, means), *spreads, f"{summary.preemptions:,}")
    return "".join(f"<td>{text}</td>" for text in texts)


def section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def folded(title: str, body: str) -> str:
    """What is seen when its title is chosen."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def table(head: Sequence[str], body: str, name: str) -> str:
    """A table of the class `name`; `head` is text, `body` is HTML already."""
    cells = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    return f'<div class="wide"><table class="{name}"><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'


def _text(value: Any) -> str:
    if value is None:
        return ""
    return escape(number(value) if isinstance(value, float) else str(value))


def _mood(outcome: str) -> str:
    upper = outcome.upper()
    return "good" if upper.startswith(GOOD) else "bad" if upper.startswith(BAD) else "neutral"
