"""A step in the making: what a policy collects while it decides."""

from dataclasses import dataclass, field

from .decode_batch import DecodeBatch
from .sequence import Sequence
from .step import Chunk, Forward, Gauges, Step


@dataclass(slots=True)
class Plan:
    """The mutable counterpart of one single-forward `Step`. `budget`: tokens that may still be scheduled."""

    budget: float
    decode: DecodeBatch | None = None
    chunks: list[Chunk] = field(default_factory=list)
    admitted: list[Sequence] = field(default_factory=list)
    resumed: list[Sequence] = field(default_factory=list)
    preempted: list[tuple[Sequence, str]] = field(default_factory=list)
    rejected: list[tuple[Sequence, str]] = field(default_factory=list)
    new_blocks: dict[Sequence, list[int]] = field(default_factory=dict)
    prefix_queries: int = 0
    prefix_hits: int = 0
    events: list[str] = field(default_factory=list)
    examined: list[Sequence] = field(default_factory=list)

    def add(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.budget -= chunk.length

    def look(self, sequence: Sequence) -> Sequence:
        """A waiting request is looked at."""
        self.examined.append(sequence)
        return sequence

    def drop(self, sequence: Sequence) -> None:
        """A sequence that was already scheduled in this step is preempted after all."""
        self.chunks = [chunk for chunk in self.chunks if chunk.sequence is not sequence]
        self.new_blocks.pop(sequence, None)

    def admit(self, sequence: Sequence) -> None:
        (self.resumed if sequence.preemptions else self.admitted).append(sequence)

    def step(self, gauges: Gauges, *, padded_tokens: int | None = None) -> Step:
        forward = Forward(tuple(self.chunks), self.decode, padded_tokens)
        forwards = (forward,) if forward.width else ()
        return Step(
            gauges, forwards, self.admitted, self.resumed, self.preempted, self.rejected, self.new_blocks,
            self.prefix_queries, self.prefix_hits, self.events, self.examined,
        )
