"""Where the value at a dotted key was written: in the file, at which line, or on the command line."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .document import Document

COMMAND = "--set "


@dataclass(frozen=True, slots=True)
class Origins:
    """`keys`: dotted key -> the key of the file that it comes from (`sweep.x`, `variants.a.x`), or `--set x`.

    Keys that are not in it, nor below one that is, come from the file under their own name.
    """

    document: Document
    keys: Mapping[str, str]

    def where(self, key: str) -> str:
        """The beginning of a message about a key: `my.yaml:12: variants.a.engine.num_blocks` or `--set engine`."""
        above, origin = self._origin(key)
        written = f"{origin}{key.removeprefix(above)}"
        return written if written.startswith(COMMAND) else self.document.where(written)

    def folder_of(self, key: str) -> Path:
        """Where a relative path at a key starts: the folder of the file, or the working folder for `--set`."""
        return Path.cwd() if self._origin(key)[1].startswith(COMMAND) else self.document.folder

    def changed(self, prefix: str, keys: Iterable[str]) -> "Origins":
        """With `keys` set again, by what the file has at `prefix` or by the `--set` that replaced it."""
        return Origins(self.document, {**self.keys, **{key: self._written(f"{prefix}.{key}") for key in keys}})

    def _written(self, key: str) -> str:
        above, origin = self._origin(key)
        return f"{origin}{key.removeprefix(above)}" if above else key

    def _origin(self, key: str) -> tuple[str, str]:
        """The longest known key at or above a key, and where it comes from."""
        above = max((each for each in self.keys if f"{key}.".startswith(f"{each}.")), key=len, default="")
        return above, self.keys.get(above, "")


def from_command(document: Document, keys: Iterable[str]) -> Origins:
    """The origins where `keys` were given to `--set` and nothing else was changed."""
    return Origins(document, {key: f"{COMMAND}{key}" for key in keys})
