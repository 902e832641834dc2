"""The facts of one scheduling decision."""

from collections.abc import Iterator, Mapping, Sequence as Ids
from dataclasses import dataclass, field
from functools import cached_property

from .decode_batch import DecodeBatch
from .sample import EmulatedSample
from .sequence import Sequence
from .totals import Totals


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive tokens of one sequence that go through a forward pass.

    `start` and `length` in tokens; `cached` is the prefix hit that this admission found before `start` (0 for later
    chunks). `samples`: the chunk ends at the last known token, so the forward yields the next one.
    `decode`: a row of one token of a sequence that was already generating; everything else is prefill.
    `drafts`: tokens proposed beyond its end, which a decode row verifies in the same pass; where no model decides,
    `accepted` of them are right.
    """

    sequence: Sequence
    start: int
    length: int
    cached: int = 0
    samples: bool = True
    decode: bool = False
    drafts: int = 0
    accepted: int = 0

    @classmethod
    def rest(
        cls, sequence: Sequence, *, cached: int = 0, limit: int | None = None, prefill: bool = False
    ) -> "Chunk":
        """All that is left to compute of a sequence, cut to `limit` tokens. `cached`: the hit of its admission.
        `prefill`: it is being (re-)prefilled, even where a single token is left."""
        left = sequence.uncomputed
        length = left if limit is None else min(left, limit)
        return cls(sequence, sequence.computed, length, cached, length == left, sequence.decoding and not prefill)

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def attended(self) -> int:
        """Query-key pairs under a causal mask."""
        return self.length * self.start + self.length * (self.length + 1) // 2


@dataclass(frozen=True, slots=True)
class Forward:
    """One forward pass: explicit chunks, and the rows of the policy's standing decode batch if it takes part.

    `padded_tokens` is what an engine that pads its prefill computes (rows times longest); None: it packs.
    Read it before anything else is scheduled or committed: the decode batch moves on.
    """

    chunks: Ids[Chunk] = ()
    decode: DecodeBatch | None = None
    padded_tokens: int | None = None

    @property
    def width(self) -> int:
        """How many sequences are in the pass."""
        return len(self.chunks) + (len(self.decode) if self.decode is not None else 0)

    def all_chunks(self) -> Iterator[Chunk]:
        """Every row as a chunk, those of the standing decode batch (first) derived on demand."""
        ahead = 0 if self.decode is None else self.decode.ahead
        for sequence in self.decode or ():
            yield Chunk(sequence, sequence.computed + ahead, 1, 0, True, True)
        yield from self.chunks

    def sampling(self) -> Iterator[Sequence]:
        yield from self.decode or ()
        for chunk in self.chunks:
            if chunk.samples:
                yield chunk.sequence


@dataclass(frozen=True, slots=True)
class Gauges:
    """The engine's own numbers, with that engine's own meaning. `kv_used` in the policy's ledger units (blocks).

    `logged_tokens`: what the engine's logger counts as throughput in this step, where it is not the sampled tokens.
    `pending_tokens`: what the engine's logger calls pending.
    """

    running: int
    waiting: int
    kv_used: int = 0
    logged_tokens: int | None = None
    pending_tokens: int | None = None


@dataclass(frozen=True)
class Step:
    """What one `schedule()` decided. Empty (no forward) where nothing can run.

    `admitted` run for the first time, `resumed` after a preemption; `preempted` and `rejected` come with the reason.
    `new_blocks`: blocks newly given to each sequence. `prefix_queries` and `prefix_hits` in the engine's own unit.
    `gauges` as they stand after scheduling. `events` names rare branches that were taken.
    `examined`: the waiting requests that the pass looked at, in order, whether they were let in or not.
    """

    gauges: Gauges
    forwards: Ids[Forward] = ()
    admitted: Ids[Sequence] = ()
    resumed: Ids[Sequence] = ()
    preempted: Ids[tuple[Sequence, str]] = ()
    rejected: Ids[tuple[Sequence, str]] = ()
    new_blocks: Mapping[Sequence, Ids[int]] = field(default_factory=dict)
    prefix_queries: int = 0
    prefix_hits: int = 0
    events: Ids[str] = ()
    examined: Ids[Sequence] = ()

    @property
    def empty(self) -> bool:
        return not self.forwards

    @cached_property
    def accepted(self) -> Mapping[Sequence, int]:
        """How many drafts of each row are right, where there are any and no model decides."""
        if not self.totals.drafts:
            return {}
        return {chunk.sequence: chunk.accepted for forward in self.forwards for chunk in forward.chunks}

    def emulated(self, count: int = 1) -> EmulatedSample:
        """What the step samples where no model computes it."""
        return EmulatedSample(self.sampling, count, self.accepted)

    @cached_property
    def totals(self) -> Totals:
        """Sums over the rows, as they are when first asked for: the engine asks before `commit`."""
        return Totals.of(self.forwards)

    def sampling(self) -> Iterator[Sequence]:
        """Sequences that get a token from this step, in the order of its rows."""
        for forward in self.forwards:
            yield from forward.sampling()

    def settle(self, sampled: Mapping[Sequence, Ids[int]]) -> None:
        """Mark the chunks as computed and take the sampled tokens: the plain part of a `commit` where nothing is
        scheduled in between."""
        for forward in self.forwards:
            for chunk in forward.chunks:
                chunk.sequence.computed = chunk.end
                if chunk.samples:
                    tokens = sampled[chunk.sequence]
                    chunk.sequence.computed += len(tokens) - 1  # the KV of accepted drafts is there already
                    chunk.sequence.append(tokens)
            if forward.decode is not None:
                forward.decode.advance(sampled)
