"""Presets and files by name, with help where a name is wrong."""

import difflib
from collections.abc import Iterable
from pathlib import Path


def existing(name_or_path: str, base: Path | None = None) -> Path | None:
    """The path where it exists; a relative one is looked up in `base` (default: the working directory)."""
    path = Path(name_or_path).expanduser()
    path = path if base is None else base / path
    return path if path.exists() else None


def unknown(kind: str, name: str, presets: Iterable[str], files: str) -> str:
    """One message: what was asked for, the presets that are close to it, all presets, what else is allowed."""
    known = list(presets)
    close = difflib.get_close_matches(name.rsplit("/", 1)[-1].lower(), known, n=3, cutoff=0.6)
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    return f"'{name}' is neither a known {kind}{hint} nor a file here; presets: {', '.join(known)}; or give {files}"
