"""mistral.rs's dense scheduler: no paging, and only sequences of one length share a forward pass."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence as Ids
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from .base import Chunk, EngineConfig, Forward, Gauges, Options, Policy, Sequence, Step
from .door import too_long
from .kv.dense_cache import DenseCache
from .length_buckets import Bucket, CatchUp, Coalescing, Greedy, shortest
from .ragged_admission import RaggedAdmission
from .speculation import Speculation

Choice = Literal["greedy", "coalesce", "catch_up"]
CHOICES: Mapping[Choice, type[Greedy]] = {"greedy": Greedy, "coalesce": Coalescing, "catch_up": CatchUp}


class MistralrsDenseOptions(Options):
    """Options of `mistralrs_dense`."""

    version: Literal["0.9.0", "0.9.5"] = Field(
        "0.9.0", description="0.9.0 prefills everybody again when nothing is running, whatever max_num_seqs says"
    )
    choice: Choice | None = Field(
        None,
        description="which length runs: greedy, the highest summed priority; coalesce (the fork's), the shortest where "
        "it soon merges; catch_up, a shorter one just behind (left out: greedy, or catch_up of 0.9.5)",
    )
    zombies: bool | None = Field(
        None, description="what ends in a prompt step decodes on past its end (left out: only 0.9.0 does that)"
    )
    ragged_admission: Literal["refused", "granted"] = Field(
        "refused", description="all decoding sequences share one bucket, if the fork's pipeline grants it"
    )
    refusal: str = Field(
        "the pipeline has not declared that it can", description="why ragged admission is refused, for the log"
    )
    speculative: Speculation | None = Field(
        None, description="decode rows verify drafts: {tokens: k, acceptance: p of each, seed: 0}"
    )


class MistralrsDense(Policy):
    """`DefaultScheduler` of mistral.rs, for models that cannot page.

    Sequences of one length form a bucket, and one bucket runs at each step: its decodes, then its prompts, in two
    forward passes of one step. The others wait with their KV and are worth more from step to step (urgency, plus log2
    of the length); nobody is preempted. Once nothing is running, 0.9.0 prefills everybody again from the start.
    The gauges are the engine's: `running` is the bucket that runs, whoever has KV but does not run is `waiting`. The
    engine keeps no account of memory: KV is counted in tokens, nothing bounds it. The prefix cache of whole sequences
    is off. What an output that ended in a prompt step decodes on is run only while there are others to serve.
    """

    Options = MistralrsDenseOptions
    engine_defaults: ClassVar[Mapping[str, Any]] = {"max_num_seqs": 32}
    engine_keys: ClassVar[frozenset[str]] = frozenset({"max_num_seqs", "max_model_len"})
    paged: ClassVar[bool] = False

    def __init__(self, engine: EngineConfig, options: MistralrsDenseOptions) -> None:
        super().__init__(engine, options)
        self.choice = options
        self.old = options.version == "0.9.0"
        self.zombies = self.old if options.zombies is None else options.zombies
        self.ragged = RaggedAdmission(None if options.ragged_admission == "granted" else options.refusal)
        self.chooser = CHOICES[options.choice or ("greedy" if self.old else "catch_up")]()
        self.seats = engine.max_num_seqs or math.inf
        if self.old:
            self.exempt |= {"seats"}
        self.speculates = options.speculative is not None
        self.cache = self.ledger = DenseCache()
        self.waiting: dict[Sequence, None] = {}  # never ran
        self.running: dict[Sequence, None] = {}  # ran, and holds KV
        self._batch: list[Sequence] = []  # the engine's own list of running ones
        self._aside: list[Sequence] = []  # and its waiting ones
        self._decoding: set[Sequence] = set()  # the engine's state RunningCompletion
        self._urgency: dict[Sequence, int] = {}
        self._gauges = Gauges(0, 0)

    def notes(self) -> list[str]:
        return [str(self.ragged)]

    def resolved_options(self) -> dict[str, Any]:
        choice = next(name for name, rule in CHOICES.items() if type(self.chooser) is rule)
        return super().resolved_options() | {"choice": choice, "zombies": self.zombies}

    def lists(self) -> list[tuple[str, list[Sequence]]]:
        """The engine's own lists: the bucket that runs, and everybody else."""
        return [("running", self._batch), ("waiting", self._aside)]

    def add(self, sequence: Sequence) -> str | None:
        reason = too_long(sequence, self.engine.max_model_len)
        if reason is None:
            self._aside.append(sequence)
            self.waiting[sequence] = None
            self._urgency[sequence] = 0
        return reason

    def schedule(self, now: float) -> Step:
        idle, full = not self._batch, not self._aside
        seated, left = self._seat()
        if idle and self.old:
            self._decoding.clear()
        buckets = self._buckets(seated)
        if len(buckets) > 1 and not idle and not full:
            winner = self.chooser.choose(buckets, self._priority)
        else:
            self.chooser.rest()
            winner = shortest(buckets)
        self._part(winner, seated, left)
        return self._step(winner)

    def _seat(self) -> tuple[list[Sequence], list[Sequence]]:
        """Who takes part in this step, the running ones first, and who finds no seat."""
        if self.old and not self._batch:
            return self._aside, []
        ordered = sorted(self._aside, key=lambda sequence: sequence.order)
        seats = int(min(max(self.seats - len(self._batch), 0), len(ordered)))
        return self._batch + ordered[:seats], ordered[seats:]

    def _buckets(self, sequences: Iterable[Sequence]) -> list[Bucket]:
        least = self._ragged_length(sequences)
        found: dict[tuple[int, bool], Bucket] = {}
        for sequence in sequences:
            ragged = least is not None and sequence in self._decoding
            length = least if ragged and least is not None else sequence.num_tokens
            bucket = found.setdefault((length, ragged), Bucket(length, ragged))
            bucket.members.append(sequence)
            bucket.decoding &= sequence in self._decoding
        return list(found.values())

    def _ragged_length(self, sequences: Iterable[Sequence]) -> int | None:
        """The one length under which all decoding sequences are filed, if mixed lengths may decode together."""
        if not self.ragged.granted:
            return None
        return min((sequence.num_tokens for sequence in sequences if sequence in self._decoding), default=None)

    def _priority(self, sequence: Sequence) -> float:
        return self._urgency[sequence] + math.log2(sequence.num_tokens)

    def _part(self, winner: Bucket, seated: list[Sequence], left: list[Sequence]) -> None:
        """The winner runs, the others wait and grow more urgent."""
        chosen = set(winner.members)
        losers = [sequence for sequence in seated if sequence not in chosen]
        for sequence in winner.members:
            self._urgency[sequence] = 0
        for sequence in losers:
            self._urgency[sequence] += 1
        self._batch, self._aside = list(winner.members), left + losers

    def _step(self, winner: Bucket) -> Step:
        admitted = [sequence for sequence in winner.members if sequence in self.waiting]
        prompts = [self._prompt(sequence) for sequence in winner.members if sequence not in self._decoding]
        decodes = [self._decode(sequence) for sequence in winner.members if sequence in self._decoding]
        for sequence in admitted:
            del self.waiting[sequence]
            self.running[sequence] = None
        for chunk in (*decodes, *prompts):
            self.cache.hold(chunk.sequence, chunk.end + chunk.drafts)
        self._gauges = Gauges(len(self._batch), len(self._aside), self.cache.used)
        forwards = [Forward(chunks) for chunks in (decodes, prompts) if chunks]
        return Step(self._gauges, forwards, admitted)

    def _prompt(self, sequence: Sequence) -> Chunk:
        """All of it, whatever KV it holds: a prompt always starts with an empty cache."""
        sequence.computed = 0
        return Chunk.rest(sequence)

    def _decode(self, sequence: Sequence) -> Chunk:
        row, speculation = Chunk.rest(sequence), self.choice.speculative
        if speculation is None:
            return row
        drafts = speculation.drafts(sequence)
        return replace(row, drafts=drafts, accepted=speculation.accepted(sequence, drafts))

    def commit(self, step: Step, sampled: Mapping[Sequence, Ids[int]], stopped: Collection[Sequence]) -> Gauges:
        step.settle(sampled)
        ended = set(stopped)
        for sequence in self._batch:
            if sequence in ended and (sequence in self._decoding or not self.zombies):
                self._release(sequence)
            else:
                self._decoding.add(sequence)
                self.cache.hold(sequence, sequence.computed)
        logged = self._logged(step)
        self._batch = [sequence for sequence in self._batch if sequence in self.running]
        return Gauges(self._gauges.running, self._gauges.waiting, self.cache.used, logged)

    def _logged(self, step: Step) -> int:
        """What the engine's interval log counts: one of a decoded row, of a prompt its length after the step."""
        chunks = [chunk for forward in step.forwards for chunk in forward.chunks]
        return sum(1 if chunk.decode else chunk.sequence.num_tokens for chunk in chunks)

    def abort(self, sequence: Sequence) -> None:
        for queue in (self._batch, self._aside):
            if sequence in queue:
                queue.remove(sequence)
        self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        self.cache.drop(sequence)
        self.waiting.pop(sequence, None)
        self.running.pop(sequence, None)
        self._decoding.discard(sequence)
        del self._urgency[sequence]

    def idle(self) -> None:
        for sequence in list(self.running):
            self._release(sequence)
        self._batch, self._aside = [], []
