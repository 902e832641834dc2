"""The file that is imported, as text: plain or gzipped."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import IO, cast

from .errors import ImportFault

HEAD = 1 << 16
"""Characters that an importer may recognise a file by."""
LONGEST = 1 << 16
"""Characters of one line; what is longer comes in pieces."""
GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Head:
    """The path of a file and the beginning of its text."""

    path: Path
    text: str


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """UTF-8, whatever is not becoming a mark; CRLF and lone CR (progress bars) end a line, as LF does.

    Raises ImportFault for what is no file, and while it is read for one that cannot be unpacked; OSError passes
    through.
    """
    _refuse_other(path)
    with _opened(path) as file:
        try:
            yield file
        except EOFError as error:
            raise ImportFault(f"{path}: the gzip file ends early: is it whole?") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise ImportFault(f"{path}: the gzip file is broken: {error}") from error


def _refuse_other(path: Path) -> None:
    """A pipe would be empty when it is read again, and wait for ever."""
    kind = path.stat().st_mode
    if S_ISDIR(kind):
        raise ImportFault(f"{path} is a folder: give the file in it")
    if not S_ISREG(kind):
        raise ImportFault(f"{path} is a pipe or a device, and what is imported is read more than once: give a file")


def _opened(path: Path) -> IO[str]:
    with path.open("rb") as file:
        zipped = file.read(2) == GZIP
    if zipped:
        return cast(IO[str], gzip.open(path, "rt", encoding="utf-8-sig", errors="replace"))
    return path.open(encoding="utf-8-sig", errors="replace")


def read_head(path: Path) -> Head:
    """Raises ImportFault for an empty file and for one that cannot be unpacked."""
    with open_text(path) as file:
        text = file.read(HEAD)
    if not text.strip():
        raise ImportFault(f"{path} is empty")
    return Head(path, text)


def lines_of(path: Path) -> Iterator[str]:
    """The lines with their ends, read as they are asked for: memory does not grow with the file."""
    with open_text(path) as file:
        while line := file.readline(LONGEST):
            yield line


def whole_text(path: Path) -> str:
    """Raises ImportFault where the file cannot be unpacked."""
    with open_text(path) as file:
        return file.read()
