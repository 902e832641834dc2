"""A measured backend that has warmed up: what can go wrong before the first step has gone wrong here."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .backend import MeasuredBackend
from .errors import ExecutorError
from .failure import starved
from .model import PagedModel


def ready(model: PagedModel, *, blocks: int, block_size: int, **choices: Any) -> MeasuredBackend:
    """`choices` as `MeasuredBackend` takes them. Raises `ExecutorError`, also where memory runs out."""
    ways_out = "lower engine.num_blocks, engine.max_num_batched_tokens or engine.max_num_seqs"
    with memory_named(f"with a KV pool of {blocks:,} blocks of {block_size} tokens, before the first step", ways_out):
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
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ExecutorError(f"out of memory {when}: {ways_out} ({reason})") from error


def use_threads(count: int | None) -> None:
    """Of the CPU, in this process; None: as many as torch takes by itself."""
    if count is not None:
        torch.set_num_threads(count)
