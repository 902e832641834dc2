"""What an importer is: how a file is recognised and read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..run import Run
from .clock import Clock
from .options import ImportOptions
from .record import LineReader
from .source import Head


@dataclass(frozen=True, slots=True)
class FileImporter:
    """For files that are read whole. `recognises` decides by the head alone.

    `read` raises ImportFault for what it cannot read, never half of it. Its run's `meta` should hold `engine` (whose
    run it is) and `notes` (a list of sentences); `import_file` adds the source, the arm and the outcome.
    """

    name: str
    about: str
    recognises: Callable[[Head], bool]
    read: Callable[[Path, ImportOptions], Run]


@dataclass(frozen=True, slots=True)
class LogImporter:
    """For logs, which are read line by line. `reader` makes a fresh reader for one log and its clock."""

    name: str
    about: str
    reader: Callable[[Clock], LineReader]


@dataclass(frozen=True, slots=True)
class Imported:
    """What was read: `matched` of `lines` lines said something; of a file read whole both are 0."""

    format: str
    lines: int
    matched: int
    samples: int
    steps: int
    requests: int
    notes: tuple[str, ...] = ()

    def counts(self) -> dict[str, int]:
        """Lines of the source, as a run's record keeps them."""
        return {"lines": self.lines, "matched": self.matched}
