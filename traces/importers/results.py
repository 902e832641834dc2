"""What the results of load generators have in common: requests with times, as a client saw them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import Any

from ..rows import run_from_rows
from ..run import Run
from .errors import ImportFault
from .source import whole_text

Row = dict[str, Any]
_TIMES = ("arrival", "first_token", "finish")


def request_run(path: Path, engine: str, rows: Sequence[Row], notes: list[str], client: Mapping[str, Any]) -> Run:
    """A run of requests alone, numbered r0, r1, ... in the order of `rows`; times count from the first arrival.

    A request that does not say when it was sent is left out, with a note. `client`: what the file says of how it was
    measured. Raises ImportFault for a file without requests.
    """
    sent = [row for row in rows if isfinite(row["arrival"])]
    if not sent:
        raise ImportFault(f"{path}: no request in it")
    if len(sent) < len(rows):
        notes = [*notes, f"{len(rows) - len(sent)} requests do not say when they were sent, and were left out"]
    start = min(row["arrival"] for row in sent)
    shifted = ({"id": f"r{number}", **_shifted(row, start)} for number, row in enumerate(sent))
    known = {name: value for name, value in client.items() if isinstance(value, str | int | float)}
    return run_from_rows(requests=shifted, meta={"engine": engine, "notes": notes, "client": known})


def _shifted(row: Row, start: float) -> Row:
    times = {name: row.get(name, nan) - start for name in _TIMES}
    return {**row, **times, "token_times": [time - start for time in row.get("token_times", ())]}


def documents(path: Path) -> Iterator[Any]:
    """The JSON documents of a file, one after another. Raises ImportFault where one is broken."""
    text, place = whole_text(path), 0
    decoder = json.JSONDecoder()
    while (place := _next(text, place)) < len(text):
        try:
            found, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, place) + 1
            raise ImportFault(f"{path}:{line}: not readable as JSON ({error}): is the file whole?") from error
        yield found


def _next(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place


def chosen(path: Path, found: Sequence[Any], rank: int, what: str) -> tuple[Any, list[str]]:
    """One of several by its number (from 0), and a note that there are others. Raises ImportFault for none such."""
    if rank >= len(found):
        raise ImportFault(f"{path}: no {what} number {rank}: there are {len(found)}, from 0")
    note = f"{what} number {rank} of {len(found)} (from 0); --rank takes another"
    return found[rank], [note] if len(found) > 1 else []


def number(value: Any) -> float:
    """A time or amount as the file has it; NaN where it has none, or one that no float holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return nan
    try:
        return float(value) if isfinite(value) else nan
    except OverflowError:
        return nan


def tokens(value: Any) -> int:
    """A number of tokens; 0 where the file has none."""
    found = number(value)
    return int(found) if 0 <= found < 2**31 else 0


def first_line(value: Any) -> str:
    return (str(value).strip().splitlines() or [""])[0][:200]
