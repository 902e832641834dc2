"""A table of measured totals, and which cell and variant of an experiment each of its rows is."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .document import Document, load, parse
from .errors import UserError, shown
from .faults import validated
from .plan import Cell, Plan, plan
from .yaml_text import read_yaml

VARIANT = "variant"
Row = Mapping[str, str]


class MappedColumn(BaseModel):
    """A column whose texts stand for other values of a key."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    key: str
    values: dict[str, Any]


Columns = Annotated[dict[str, str | MappedColumn], Field(min_length=1)]


class FitTable(BaseModel):
    """What a fit from totals needs to know: the experiment that was measured, the table, what its columns are.

    `columns` maps a column to a swept key or to `variant`, where needed with the values that its texts stand for.
    `tokens_per_second` or `seconds` names the measured columns, of which the mean counts. Rows that match all of one
    mapping in `leave_out` are predicted but not fitted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    experiment: str
    table: str
    columns: Columns
    tokens_per_second: list[str] = []
    seconds: list[str] = []
    leave_out: list[dict[str, str | int | float]] = []

    @model_validator(mode="after")
    def _measured_once(self) -> "FitTable":
        if bool(self.tokens_per_second) == bool(self.seconds):
            raise ValueError("give the measured columns as tokens_per_second or as seconds, one of the two")
        return self


@dataclass(frozen=True, slots=True)
class Total:
    """One measured row: which cell and variant it is of, and what was measured (tokens per second, or seconds)."""

    label: str
    cell: Cell
    variant: str
    measured: float
    is_rate: bool
    fitted: bool


def read_totals(path: Path) -> list[Total]:
    """Raises `UserError` with file, line and reason."""
    document = parse(path.read_bytes(), str(path), path.resolve().parent, path.stem)
    table: FitTable = validated(FitTable, dict(document.raw), document)
    near = document.folder / table.experiment
    planned = plan(load(near if near.is_file() else table.experiment))
    source = document.folder / table.table
    if not source.is_file():
        raise UserError(f"{document.where('table')}: no file {source}")
    rows = _rows(table, source)
    _check_left_out(table, rows, document)
    return [_total(table, planned, row, f"{source}:{line}") for line, row in rows.items()]


def _rows(table: FitTable, source: Path) -> dict[int, Row]:
    """The rows by their lines."""
    try:
        with source.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            _check_columns(table, reader.fieldnames or (), source)
            rows: dict[int, Row] = dict((reader.line_num, row) for row in reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{source}: not a CSV text: {error}") from error
    if not rows:
        raise UserError(f"{source}: no rows")
    for line, row in rows.items():
        if None in row or None in row.values():
            raise UserError(f"{source}:{line}: as many fields as the first line names columns were expected: cut off?")
    return rows


def _check_columns(table: FitTable, found: Sequence[str], source: Path) -> None:
    left_out = (name for each in table.leave_out for name in each)
    missing = [name for name in (*table.columns, *table.tokens_per_second, *table.seconds, *left_out)
               if name not in found]
    if missing:
        raise UserError(f"{source}:1: no column {', '.join(missing)}; there are {', '.join(found) or 'none'}")


def _check_left_out(table: FitTable, rows: Mapping[int, Row], document: Document) -> None:
    for place, each in enumerate(table.leave_out):
        if not any(_matches(row, each) for row in rows.values()):
            raise UserError(f"{document.where(f'leave_out.{place}')}: no row has {shown(each)}")


def _matches(row: Row, wanted: Mapping[str, object]) -> bool:
    return all(str(value) == row[name] for name, value in wanted.items())


def _total(table: FitTable, planned: Plan, row: Row, where: str) -> Total:
    settings = {_key(meaning): _meant(meaning, row[name], where) for name, meaning in table.columns.items()}
    variant = str(settings.pop(VARIANT, planned.variants[0]))
    if variant not in planned.variants:
        raise UserError(f"{where}: no variant {variant!r}; there are {', '.join(planned.variants)}")
    measured = [_number(row[name], f"{where}: {name}") for name in (*table.tokens_per_second, *table.seconds)]
    left_out = any(_matches(row, each) for each in table.leave_out)
    label = " ".join(row[name] for name in table.columns)
    cell = _cell(planned, settings, where)
    return Total(label, cell, variant, sum(measured) / len(measured), bool(table.tokens_per_second), not left_out)


def _key(meaning: str | MappedColumn) -> str:
    return meaning if isinstance(meaning, str) else meaning.key


def _meant(meaning: str | MappedColumn, text: str, where: str) -> Any:
    if isinstance(meaning, str):
        return read_yaml(text, where).value
    if text not in meaning.values:
        raise UserError(f"{where}: {text!r} is none of {', '.join(meaning.values)}")
    return meaning.values[text]


def _cell(planned: Plan, settings: Mapping[str, Any], where: str) -> Cell:
    fitting = [cell for cell in planned.cells if all(cell.settings.get(key) == settings[key] for key in settings)]
    if len(fitting) != 1:
        labels = "; ".join(cell.label for cell in planned.cells)
        raise UserError(f"{where}: {shown(settings)} is {len(fitting)} cells of {planned.shape.name} ({labels})")
    return fitting[0]


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{where}: found {text!r}, a number was expected") from None
    if not (value > 0 and math.isfinite(value)):
        raise UserError(f"{where}: found {text}, a number above 0 was expected")
    return value
