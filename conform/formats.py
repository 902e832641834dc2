"""Which module replays the traces of which engine."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from .frame import Frame

Replay = Callable[[Mapping[str, Any]], Iterator[Frame]]

FORMATS = {"mistral.rs": "mistralrs_dense", "sglang": "sglang", "vllm": "vllm"}
"""A trace's `engine` -> the module of this folder that has its `replay`."""


def replay_of(trace: Mapping[str, Any]) -> Replay:
    """Raises ValueError where no format fits, saying what there is."""
    engine = trace.get("engine")
    if engine not in FORMATS:
        raise ValueError(f"a trace of engine {engine!r}, which none of {', '.join(FORMATS)} is")
    replay: Replay = import_module(f"{__package__}.{FORMATS[engine]}").replay
    return replay
