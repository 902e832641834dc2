"""What a trace format is: how it is recognised and read."""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .error import WorkloadError
from .rows import Rows

HEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """What a format that samples its requests needs to know; the others read the whole file and look at none of it."""

    seed: int = 0
    window: tuple[float, float] | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The path of a trace and its first line: as fields of a CSV, and as a JSON object where it is one."""

    path: Path
    fields: tuple[str, ...] = ()
    record: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Format:
    """`matches` decides by the head alone. `read` raises WorkloadError for what it cannot read, never half of it."""

    name: str
    about: str
    matches: Callable[[Head], bool]
    read: Callable[[Path, Reading], Rows]


def read_head(path: Path) -> Head:
    """The first line that is not blank. Raises WorkloadError for an empty file and for one that is not text."""
    if path.is_dir():
        return Head(path)
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if b"\0" in head:
        raise WorkloadError(f"{path} is not text (it has zero bytes): a binary or compressed file?")
    lines = head.splitlines()
    first = next((line for line in lines if line.strip()), b"")
    if not first:
        raise WorkloadError(f"{path} is empty")
    return _head(path, first.removeprefix(b"\xef\xbb\xbf"))


def _head(path: Path, line: bytes) -> Head:
    text = line.decode(errors="replace").strip()
    if text.startswith("{"):
        return Head(path, record=_object(text))
    return Head(path, fields=_fields(text))


def _fields(text: str) -> tuple[str, ...]:
    try:
        return tuple(field.strip() for field in next(csv.reader([text]), []))
    except csv.Error:
        return (text,)


def _object(text: str) -> dict[str, Any] | None:
    try:
        record = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
