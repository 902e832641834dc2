"""What of two runs' configurations differs."""

from collections.abc import Iterator, Mapping
from typing import Any

from .run import Run

SECTIONS = ("engine", "policy")
"""Those that decisions depend on."""


def settings(a: Run, b: Run) -> dict[str, tuple[Any, Any]]:
    """Dotted keys of the engine's limits and the policy's options whose values differ, where both runs have them."""
    left, right = dict(_flat(a)), dict(_flat(b))
    return {key: (left[key], right[key]) for key in left if key in right and left[key] != right[key]}


def _flat(run: Run) -> Iterator[tuple[str, Any]]:
    config = run.meta.get("config")
    for section in SECTIONS:
        found = config.get(section) if isinstance(config, Mapping) else None
        if isinstance(found, Mapping):
            yield from ((f"{section}.{key}", value) for key, value in found.items())
