"""Passes that are run before the clock counts."""

from collections.abc import Iterator

from ..policies.base import Chunk, Forward, Sequence
from .inputs import InputBuilder
from .runner import Runner

PROMPT = 512
"""Tokens of the longest prompt, as far as the pool has room and the model positions."""

ROUNDS = 2


def warm_up(
    builder: InputBuilder, runner: Runner, *, blocks: int, block_size: int, rows: int, positions: int | None = None
) -> int:
    """A long prompt, a short one, and decode passes of 1, some and all rows, each as often as `ROUNDS` says: kernels
    are loaded and tuned, and memory is taken, at a first call. `positions`: how many the model has, None if it does not
    say. Writes into blocks from 1 on. Returns the passes."""
    passes = 0
    for _ in range(ROUNDS):
        for forward in _forwards(blocks, block_size, rows, min(PROMPT, positions or PROMPT)):
            runner.run(builder.build(forward)).tolist()
            passes += 1
    return passes


def _forwards(blocks: int, block_size: int, rows: int, longest: int) -> Iterator[Forward]:
    for tokens in (longest, min(longest, block_size)):
        pages = min(-(-tokens // block_size), blocks)
        yield Forward((_chunk("prompt", range(1, pages + 1), min(tokens, pages * block_size)),))
    for count in sorted({1, min(8, rows, blocks), min(rows, blocks)}):
        yield Forward([_chunk(f"row {row}", range(row + 1, row + 2), 1) for row in range(count)])


def _chunk(name: str, blocks: range, tokens: int) -> Chunk:
    sequence = Sequence(f"warm-up {name}", range(tokens), 1)
    sequence.block_table = list(blocks)
    return Chunk(sequence, 0, tokens)
