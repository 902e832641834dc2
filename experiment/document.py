"""An experiment file as it was written: its content, where it comes from, and on which line each key stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from .. import configs
from .errors import UserError, shown, suggestion
from .yaml_text import read_yaml

ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Document:
    """`source` is what messages call the file; relative paths in it start at `folder`. `raw` is never changed."""

    name: str
    source: str
    folder: Path
    raw: Mapping[str, Any]
    lines: Mapping[str, int]

    def line_of(self, key: str) -> int | None:
        """The line (from 1) of a dotted key, or of the nearest key above it that the file has."""
        parts = key.split(".")
        for end in range(len(parts), 0, -1):
            if (line := self.lines.get(".".join(parts[:end]))) is not None:
                return line
        return None

    def where(self, key: str) -> str:
        """`my.yaml:12: engine.num_blocks`, the beginning of a message about that key."""
        line = self.line_of(key)
        place = self.source if line is None else f"{self.source}:{line}"
        return f"{place}: {key}" if key else place


def load(name: str | Path) -> Document:
    """Read a path, or a bundled experiment by its name (with or without .yaml).

    Raises `UserError` on an unknown name and on what is not a mapping in YAML, `OSError` where the file is unreadable.
    """
    path = Path(name)
    if path.is_file():
        return parse(path.read_bytes(), str(name), path.resolve().parent, path.stem)
    if path.is_dir():
        raise UserError(f"{name}: is a folder; an experiment is a YAML file")
    found = bundled().get(_stem(str(name)))
    if found is None:
        raise UserError(_unknown(str(name)))
    return parse(found.read_bytes(), found.name, found.parent, found.stem)


def bundled() -> dict[str, Path]:
    """The experiments that come with arcsim, by name."""
    folder = Path(str(resources.files(configs)))
    return {path.stem: path for path in sorted(folder.iterdir()) if path.suffix in ENDINGS}


def parse(content: bytes, source: str, folder: Path, stem: str) -> Document:
    """A document from the bytes of a YAML file. Raises `UserError`."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{source}: byte {error.start} is not UTF-8; an experiment is a YAML text") from error
    read = read_yaml(text, source)
    if not isinstance(read.value, dict):
        found = "nothing" if read.value is None else shown(read.value)
        raise UserError(f"{source}: found {found} where an experiment (a mapping with workload and policy) must stand")
    return Document(str(read.value.get("name", stem)), source, folder, read.value, read.lines)


def _stem(name: str) -> str:
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)


def _unknown(name: str) -> str:
    known = suggestion(_stem(name), bundled(), "bundled")
    return f"{name}: no such file, and no bundled experiment of that name; {known}"
