"""A measured backend that has warmed up: what can go wrong before the first step has gone wrong here."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .backend import MeasuredBackend
from .errors import ExecutorError
from .failure import WAYS_OUT, out_of_memory, starved
from .model import PagedModel


def ready(model: PagedModel, *, blocks: int, block_size: int, **choices: Any) -> MeasuredBackend:
    """`choices` as `MeasuredBackend` takes them. Raises `ExecutorError`, also where memory runs out."""
    with memory_named(f"with a KV pool of {blocks:,} blocks of {block_size} tokens, before the first step", WAYS_OUT):
        backend = MeasuredBackend(model, blocks=blocks, block_size=block_size, **choices)
        backend.warm_up()
    return backend


@contextmanager
def memory_named(when: str, ways_out: str) -> Iterator[None]:
    """Memory that runs out is an `ExecutorError`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not starved(error):
            raise
        raise ExecutorError(out_of_memory(when, ways_out, error)) from error


def use_threads(count: int | None) -> None:
    """Of the CPU, in this process; None: as many as torch takes by itself."""
    if count is not None:
        torch.set_num_threads(count)
