"""Which steps a calibration measures: decode rows by context, prefills by tokens and cached context, and mixtures."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from .errors import UserError


@dataclass(frozen=True, slots=True)
class Point:
    """A step: `decode` rows that each read `context` tokens, and `prompts` chunks of `length` tokens behind `start`
    computed ones."""

    decode: int = 0
    context: int = 0
    prompts: int = 0
    start: int = 0
    length: int = 0

    @property
    def rows(self) -> list[tuple[int, int]]:
        """(start, length) of each row, the decode rows first."""
        return [(self.context - 1, 1)] * self.decode + [(self.start, self.length)] * self.prompts

    def blocks(self, size: int) -> int:
        return sum(-(-(start + length) // size) for start, length in self.rows)

    def __str__(self) -> str:
        decode = f"{self.decode} decode rows of {self.context}" if self.decode else ""
        behind = f" behind {self.start}" if self.start else ""
        prefill = f"{self.prompts} x {self.length} prefill tokens{behind}" if self.prompts else ""
        return " and ".join(part for part in (decode, prefill) if part)


@dataclass(frozen=True, slots=True)
class Limits:
    """`rows` of a step, `tokens` of its prefill, `context` of a row: what the workloads to be simulated will reach.
    `pool`: KV entries that all rows of a step may hold together."""

    rows: int
    tokens: int
    context: int

    def __post_init__(self) -> None:
        for name, least in (("rows", 1), ("tokens", 16), ("context", 32)):
            if getattr(self, name) < least:
                raise UserError(f"--{name} {getattr(self, name)}: at least {least}")

    @property
    def pool(self) -> int:
        """Half of what all rows at the longest context would hold: no step of a sensible engine holds more."""
        return max(self.rows * self.context // 2, self.context + self.rows, self.tokens + self.rows)


def design(limits: Limits) -> list[Point]:
    """The points, each once, in a fixed order."""
    found = [*_decode(limits), *_prefill(limits), *_mixed(limits)]
    fitting = [point for point in dict.fromkeys(found) if sum(map(sum, point.rows)) <= limits.pool]
    return [point for point in fitting if all(start + length <= limits.context for start, length in point.rows)]


def ladder(top: int, halves: bool = False) -> list[int]:
    """1, 2, 4, 8, ... and `top`; with `halves` also 3, 6, 12, ..."""
    powers = [1 << exponent for exponent in range(top.bit_length())]
    between = [3 * power // 2 for power in powers if power > 1] if halves else []
    return sorted({value for value in (*powers, *between, top) if value <= top})


def _decode(limits: Limits) -> Iterator[Point]:
    contexts = sorted({32, limits.context // 4, limits.context // 2, limits.context})
    for rows, context in product(ladder(limits.rows, halves=True), contexts):
        yield Point(decode=rows, context=context)


def _prefill(limits: Limits) -> Iterator[Point]:
    longest = min(limits.tokens, limits.context)
    for length in (each for each in ladder(longest, halves=True) if each >= 4):
        yield Point(prompts=1, length=length)
    for length in (each for each in ladder(longest) if each >= 16):
        yield Point(prompts=1, start=limits.context // 2, length=length)
        yield Point(prompts=1, start=limits.context - length, length=length)
    for prompts, tokens in product((2, 4, 8), (longest // 4, longest)):
        if tokens // prompts >= 4 and prompts <= limits.rows:
            yield Point(prompts=prompts, length=tokens // prompts)
    yield from _many_prompts(limits, longest)


def _many_prompts(limits: Limits, longest: int) -> Iterator[Point]:
    """More tokens than one sequence can have: as few prompts as that takes, and as many as there may be."""
    for tokens in (each for each in ladder(limits.tokens, halves=True) if each > longest):
        for prompts in sorted({-(-tokens // longest), limits.rows}):
            if prompts <= limits.rows and prompts * longest >= tokens:
                yield Point(prompts=prompts, length=tokens // prompts)


def _mixed(limits: Limits) -> Iterator[Point]:
    rows = sorted({1, *(max(limits.rows // part, 1) for part in (8, 4, 2)), max(limits.rows - 1, 1)})
    lengths = sorted({max(min(limits.tokens, limits.context) // part, 8) for part in (32, 8, 4, 2, 1)})
    for count, (place, length) in product(rows, enumerate(lengths)):
        context = (limits.context // 8, limits.context // 2)[place % 2]
        yield Point(count, context, 1, 0, max(length - count, 4))
