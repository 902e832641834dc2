"""The rows of a trace file, by column, each still knowing its line."""

import csv
import json
from array import array
from collections.abc import Callable, Iterator, Sequence as Items
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .error import WorkloadError
from .fields import seconds, token_count, whole_number
from .files import text_lines

Value = TypeVar("Value")
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Table:
    """`columns` by name, all as long as `lines`, which holds the line (from 1) that each row stands on.

    `found`: the names of all columns of the file, also of those that were not kept.
    """

    path: Path
    columns: dict[str, list[Any]]
    lines: Items[int]
    found: Items[str]

    def __len__(self) -> int:
        return len(self.lines)

    def need(self, format: str, *names: str) -> None:
        """Raises WorkloadError where a column that the format has is missing."""
        for name in names:
            if name not in self.columns:
                found = _short(", ".join(self.found))
                raise WorkloadError(f"{self.path}: no column {name!r}, which format '{format}' has; found: {found}")

    def tokens(self, name: str, default: Integers | None = None) -> Integers:
        """Numbers of tokens, at least 0. An empty field takes the `default` of its row where there is one."""
        return np.array(self.parsed(name, token_count, default), dtype=np.int64)

    def integers(self, name: str, default: Integers) -> Integers:
        return np.array(self.parsed(name, whole_number, default), dtype=np.int64)

    def seconds(self, name: str) -> Floats:
        return np.array(self.parsed(name, seconds), dtype=np.float64)

    def dates(self, name: str) -> Floats:
        """Dates with time of day (ISO 8601, to the microsecond) as seconds after the first row."""
        dates = self.parsed(name, _date)
        offsets = [(date - dates[0]) / timedelta(seconds=1) for date in dates]
        return np.array(offsets, dtype=np.float64)

    def parsed(self, name: str, parse: Callable[[Any], Value], default: Any = None) -> list[Value]:
        """The column with `parse` applied. Raises WorkloadError with file, line, column and reason."""
        fields = self.columns[name]
        if default is not None and any(_is_empty(field) for field in fields):
            fields = [int(value) if _is_empty(field) else field for field, value in zip(fields, default, strict=True)]
        row = 0
        try:
            values = []
            for row, field in enumerate(fields):  # noqa: B007 - names the row in the error
                values.append(parse(field))
            return values
        except ValueError as error:
            raise self.wrong(row, f"{name} = {_short(fields[row])} {error}") from None

    def wrong(self, row: int, reason: str) -> WorkloadError:
        return WorkloadError.at(self.path, self.lines[row], reason)


def read_csv(path: Path, only: Items[str] = (), *, header: Items[str] = ()) -> Table:
    """A file of comma-separated values, or of its columns those in `only` that it has. `header` where it names none.

    Blank lines are skipped. Raises WorkloadError for a row with too few or too many fields, for columns of
    the same name, and for no rows at all.
    """
    rows = _csv_rows(path)
    names = tuple(header) or tuple(name.strip() for name in _first(rows, path)[1])
    if len(set(names)) < len(names):
        raise WorkloadError.at(path, 1, f"two columns have the same name: {_short(', '.join(names))}")
    places = [place for place, name in enumerate(names) if name in (only or names)]
    columns: list[list[Any]] = [[] for _ in places]
    lines = array("q")
    for line, row in rows:
        if len(row) != len(names):
            raise WorkloadError.at(path, line, f"{len(row)} fields, but there are {len(names)} columns: a cut line?")
        lines.append(line)
        for column, place in zip(columns, places, strict=True):
            column.append(row[place])
    if not lines:
        raise WorkloadError(f"{path} has no rows")
    return Table(path, dict(zip((names[place] for place in places), columns, strict=True)), lines, names)


def _first(rows: Iterator[tuple[int, list[str]]], path: Path) -> tuple[int, list[str]]:
    for row in rows:
        return row
    raise WorkloadError(f"{path} is empty")


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(text_lines(path))
    try:
        for row in reader:
            if any(row) and any(field.strip() for field in row):
                yield reader.line_num, row
    except csv.Error as error:
        raise WorkloadError.at(path, reader.line_num, f"not comma-separated values: {error}") from None


def read_jsonl(path: Path) -> Table:
    """A file of one JSON object per line. Blank lines are skipped; a key that a line lacks is None there.

    Raises WorkloadError for what is not JSON or not an object, and for no rows at all.
    """
    records, lines = [], array("q")
    for line, record in _json_objects(path):
        records.append(record)
        lines.append(line)
    if not records:
        raise WorkloadError(f"{path} is empty")
    names = dict.fromkeys(name for record in records for name in record)
    return Table(path, {name: [record.get(name) for record in records] for name in names}, lines, tuple(names))


def _json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, text in enumerate(text_lines(path), 1):
        if text.strip():
            yield number, _json_object(path, number, text)


def _json_object(path: Path, line: int, text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise WorkloadError.at(path, line, f"not JSON, one object per line: {error}") from None
    if not isinstance(record, dict):
        raise WorkloadError.at(path, line, f"a JSON {type(record).__name__} where an object {{...}} belongs")
    return record


def _short(field: Any) -> str:
    text = repr(field)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _is_empty(field: Any) -> bool:
    return field is None or field == "" or (isinstance(field, str) and not field.strip())


def _date(field: Any) -> datetime:
    try:
        date = datetime.fromisoformat(field.strip())
    except (AttributeError, ValueError):
        raise ValueError("is not a date and time such as 2023-11-16 18:15:46.68") from None
    return date.replace(tzinfo=None) - (date.utcoffset() or timedelta(0))
