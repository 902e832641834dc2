"""Short names for the cells of a sweep: `count=8 prompt=spread(50,500)/8`."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

LONGEST_FOLDER = 80


def labels(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """One label per cell, no two alike; the empty text for the only cell of an experiment without a sweep."""
    keys = short_keys(list(cells[0])) if cells else {}
    for written in (_short, _full):
        result = [_label(cell, keys, written) for cell in cells]
        if len(set(result)) == len(result):
            return result
    return [f"{text} #{index}" for index, text in enumerate(result, start=1)]


def folders(names: Sequence[str]) -> list[str]:
    """The labels as names of folders, on any file system, no two alike."""
    plain = [re.sub(r"[^A-Za-z0-9._=-]+", "_", name).strip("_.")[:LONGEST_FOLDER] for name in names]
    distinct = len({name.lower() for name in plain}) == len(plain)
    return plain if distinct else [f"{index:03d}_{name}" for index, name in enumerate(plain, start=1)]


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Each dotted key with the shortest of its ends that no other key has."""
    return {key: next(end for end in _ends(key) if end == key or _is_only(end, keys)) for key in keys}


def _ends(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[-count:]) for count in range(1, len(parts))] + [key]


def _is_only(end: str, keys: Sequence[str]) -> bool:
    return sum(f".{key}".endswith(f".{end}") for key in keys) == 1


def _label(cell: Mapping[str, Any], keys: Mapping[str, str], written: Callable[[Any], str]) -> str:
    return " ".join(f"{keys[key]}={written(value)}" for key, value in cell.items())


def _short(value: Any) -> str:
    """`{spread: [50, 500], distinct: 8}` as `spread(50,500)/8`."""
    if isinstance(value, Mapping) and value:
        (first, content), *rest = value.items()
        head = str(content) if first in ("kind", "name") else f"{first}({_inner(content, _short)})"
        return "/".join([head, *(_short(other) for _, other in rest)])
    return f"[{_inner(value, _short)}]" if isinstance(value, list) else _scalar(value)


def _full(value: Any) -> str:
    """`{spread: [50, 500], distinct: 8}` as `{spread=[50,500],distinct=8}`."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}={_full(inner)}" for key, inner in value.items()) + "}"
    return f"[{_inner(value, _full)}]" if isinstance(value, list) else _scalar(value)


def _inner(value: Any, written: Callable[[Any], str]) -> str:
    return ",".join(written(item) for item in value) if isinstance(value, list) else written(value)


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
