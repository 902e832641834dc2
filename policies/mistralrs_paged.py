"""mistral.rs's paged scheduler: before ragged decode, with it, and with the per-leg length rule."""

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence as Ids
from typing import Any, ClassVar, Literal

from pydantic import Field

from .base import Chunk, EngineConfig, EngineFault, Gauges, Options, Policy, Sequence, Step
from .decode_admission import Admission, DecodeAdmission
from .door import too_large, too_long
from .kv.block_pool import BlockPool
from .kv.cached_blocks import CachedBlocks
from .plan import Plan


class MistralrsPagedOptions(Options):
    """Options of `mistralrs_paged`: the fork's versions of one scheduler."""

    decode: Admission | None = Field(
        None,
        description="ragged: every running sequence decodes; bucketed: only those of the shortest length, the others "
        "are preempted (left out: ragged, or bucketed where ARC_SCHED_BUCKETED_DECODE is 1)",
    )
    prefill: Literal["bucketed", "length_rule"] = Field(
        "bucketed", description="which prompts share a step: of one length, or any unless one has a prefix hit"
    )
    victim: Literal["oldest", "newest"] = Field("oldest", description="who loses its blocks when memory runs out")
    caching: Literal["none", "by_len", "by_computed"] = Field(
        "by_computed",
        description="what a preempted sequence leaves in the prefix cache; by_len also what it never computed",
    )
    waiting_timeout: int = Field(64, ge=1, description="failed passes after which the queue's head may preempt")
    starvation_bug: bool = Field(False, description="after that preemption, admit the victim in the head's place")
    logged_tokens: Literal["by_len", "uncomputed"] = Field(
        "by_len", description="what the engine's log counts for a prompt: its whole length, or what was computed"
    )
    strict_mistralrs: bool = Field(False, description="let in what can never fit, as the engine does")


class MistralrsPaged(Policy):
    """`PagedAttentionScheduler` of mistral.rs at the commit the ArcSched fork started from, and the fork's two fixes.

    A step is all prompts or all decodes, and prompts always win. `running` counts idle decoders on a prompt step too,
    so the engine's gauge is not the forward width. Where the engine leaves the order of losing buckets to a hash map,
    the longest is preempted first, so that the shortest ends in front of the queue. `num_blocks` includes the null
    block. Times order sequences by arrival, ties by submission.
    """

    Options = MistralrsPagedOptions
    engine_defaults: ClassVar[Mapping[str, Any]] = {"block_size": 32, "max_num_seqs": 32}
    log_style: ClassVar[str] = "mistralrs"
    engine_keys: ClassVar[frozenset[str]] = frozenset(EngineConfig.model_fields) - {"max_num_batched_tokens"}

    def __init__(self, engine: EngineConfig, options: MistralrsPagedOptions) -> None:
        super().__init__(engine, options)
        if engine.num_blocks < 2:
            raise ValueError(f"engine.num_blocks: {engine.num_blocks}, but one is the null block: give at least 2")
        self.choice = options
        self.admission = DecodeAdmission.decide(options.decode)
        self.stall_after = options.waiting_timeout + 6
        if options.starvation_bug:
            self.exempt |= {"once"}
        if options.strict_mistralrs:
            self.exempt |= {"door"}
        self.waiting: deque[Sequence] = deque()
        self.running: deque[Sequence] = deque()
        self.pool = self.ledger = BlockPool(engine.num_blocks - 1, engine.block_size, first_id=1)
        self.blocks = CachedBlocks(self.pool, caching=options.caching != "none")
        self.seats = engine.max_num_seqs or math.inf
        self._prompting: set[Sequence] = set()  # the engine's state RunningPrompt
        self._failures: dict[Sequence, int] = {}

    def notes(self) -> list[str]:
        return [str(self.admission)]

    def resolved_options(self) -> dict[str, Any]:
        return super().resolved_options() | {"decode": self.admission.admission}

    def add(self, sequence: Sequence) -> str | None:
        reason = too_long(sequence, self.engine.max_model_len)
        if reason is None and not self.choice.strict_mistralrs:
            reason = too_large(sequence, self.pool.usable, self.pool.block_size)
        if reason is None:
            self.waiting.append(sequence)
        return reason

    def schedule(self, now: float) -> Step:
        plan = Plan(budget=math.inf)
        prompts = self._admit(plan)
        return self._prompt_step(plan, prompts) if prompts else self._decode_step(plan)

    # The prompt leg

    def _admit(self, plan: Plan) -> list[Sequence]:
        scheduled: list[Sequence] = []
        while self.waiting and len(self.running) < self.seats:
            head = self.waiting[0]
            if head in plan.examined and not self.choice.starvation_bug:
                break  # let in by this very pass, and then preempted for one that waited too long
            plan.look(head)
            if not self._allocate(plan, head):
                if self._waits(head):
                    break
                self._starve(plan, head, scheduled)
                if not self._allocate(plan, head):
                    self._ignore(plan, head)
                    continue
            scheduled.append(self._enter(plan, head))
        return scheduled

    def _allocate(self, plan: Plan, sequence: Sequence) -> bool:
        hit = self.blocks.hit(sequence)
        if not sequence.block_table:
            if not self.blocks.fits(sequence.num_tokens, hit):
                return False
            plan.new_blocks[sequence] = list(self.blocks.start(sequence, sequence.num_tokens, hit))
        plan.prefix_queries += self.blocks.caching
        plan.prefix_hits += bool(hit)
        self._failures.pop(sequence, None)
        return True

    def _waits(self, head: Sequence) -> bool:
        self._failures[head] = self._failures.get(head, 0) + 1
        return self._failures[head] <= self.choice.waiting_timeout

    def _starve(self, plan: Plan, head: Sequence, scheduled: list[Sequence]) -> None:
        """The head waited too long: one running sequence makes room for it, if there is one."""
        plan.events.append(f"{head.id} waited {self.choice.waiting_timeout} passes")
        if self.running:
            victim = self.running.pop()
            if victim in scheduled:
                scheduled.remove(victim)
                plan.drop(victim)
            self._preempt(plan, victim, "the head of the queue waited too long")

    def _ignore(self, plan: Plan, head: Sequence) -> None:
        self.waiting.remove(head)
        self._forget(head)
        lacks = f"needs {self.pool.blocks_for(head.num_tokens)} blocks, {self.pool.free} of {self.pool.usable} are free"
        plan.rejected.append((head, f"{lacks} after {self.choice.waiting_timeout} passes"))

    def _enter(self, plan: Plan, head: Sequence) -> Sequence:
        """Move the head of the queue to `running`. With the starvation bug that is the victim pushed before it."""
        self._prompting.add(head)
        entered = self.waiting[0] if self.choice.starvation_bug else head
        self.waiting.remove(entered)
        self.running.append(entered)
        plan.admit(entered)
        return entered

    def _prompt_step(self, plan: Plan, prompts: list[Sequence]) -> Step:
        ragged = self.choice.prefill == "length_rule" and not any(sequence.cached for sequence in prompts)
        batch = prompts if ragged else self._shortest(plan, prompts)
        stray = next((sequence for sequence in batch if not sequence.block_table), None)
        if stray is not None:
            raise EngineFault(f"{stray.id} is scheduled, but holds no blocks (starvation bug)")
        for sequence in batch:
            plan.add(Chunk.rest(sequence, cached=sequence.cached, prefill=True))
        padded = len(batch) * max(chunk.length for chunk in plan.chunks)
        return plan.step(self._gauges(), padded_tokens=padded)

    # The decode leg

    def _decode_step(self, plan: Plan) -> Step:
        kept = self._reserve(plan)
        if self.admission.admission == "bucketed":
            kept = self._shortest(plan, kept)
        self.running = deque(kept)
        for sequence in kept:
            self._prompting.discard(sequence)
            self._publish(sequence)
            plan.add(Chunk.rest(sequence))
        return plan.step(self._gauges())

    def _reserve(self, plan: Plan) -> list[Sequence]:
        """One slot beyond each sequence's tokens, in order; whoever comes last in it pays when blocks run out."""
        kept: list[Sequence] = []
        self.running = deque(sorted(self.running, key=_by_arrival, reverse=self.choice.victim == "oldest"))
        while self.running:
            sequence = self.running.popleft()
            if self._free_for(plan, sequence):
                plan.new_blocks[sequence] = self.blocks.grow(sequence, sequence.num_tokens + 1)
                kept.append(sequence)
        return kept

    def _free_for(self, plan: Plan, sequence: Sequence) -> bool:
        while self.blocks.missing(sequence, sequence.num_tokens + 1) > self.pool.free:
            victim = self.running.pop() if self.running else sequence
            self._preempt(plan, victim, "no free block")
            if victim is sequence:
                return False
        return True

    # Both

    def _shortest(self, plan: Plan, sequences: list[Sequence]) -> list[Sequence]:
        """Keep the sequences of the smallest length (of a prompt: beyond its prefix hit), preempt the others."""
        buckets: dict[int, list[Sequence]] = {}
        for sequence in sequences:
            buckets.setdefault(self._length(sequence), []).append(sequence)
        for length in sorted(buckets, reverse=True)[:-1]:
            for sequence in reversed(buckets[length]):
                self._lose(plan, sequence)
        return buckets[min(buckets)] if buckets else []

    def _length(self, sequence: Sequence) -> int:
        return sequence.num_tokens - (sequence.cached if sequence in self._prompting else 0)

    def _lose(self, plan: Plan, sequence: Sequence) -> None:
        if sequence in self.running:
            self.running.remove(sequence)
        plan.drop(sequence)
        self._preempt(plan, sequence, "another length")

    def _preempt(self, plan: Plan, sequence: Sequence, reason: str) -> None:
        self._publish(sequence)
        self.blocks.free(sequence)
        self._prompting.discard(sequence)
        sequence.drop_kv()
        plan.preempted.append((sequence, reason))
        self.waiting.appendleft(sequence)

    def _publish(self, sequence: Sequence) -> None:
        tokens = sequence.num_tokens if self.choice.caching == "by_len" else sequence.computed
        self.blocks.publish(sequence, min(tokens, len(sequence.block_table) * self.pool.block_size))

    def commit(self, step: Step, sampled: Mapping[Sequence, Ids[int]], stopped: Collection[Sequence]) -> Gauges:
        step.settle(sampled)
        logged = sum(self._logged(chunk, stopped) for forward in step.forwards for chunk in forward.chunks)
        for sequence in stopped:
            self.running.remove(sequence)
            self._publish(sequence)
            self._release(sequence)
        return self._gauges(logged)

    def _logged(self, chunk: Chunk, stopped: Collection[Sequence]) -> int:
        """What the engine's interval log counts: a finished or decoded row 1, a prompt its length after the step."""
        if chunk.decode or chunk.sequence in stopped:
            return 1
        return chunk.sequence.num_tokens if self.choice.logged_tokens == "by_len" else chunk.length

    def abort(self, sequence: Sequence) -> None:
        (self.running if sequence in self.running else self.waiting).remove(sequence)
        self._release(sequence)

    def _release(self, sequence: Sequence) -> None:
        self.blocks.free(sequence)
        self._forget(sequence)

    def _forget(self, sequence: Sequence) -> None:
        self.blocks.forget(sequence)
        self._prompting.discard(sequence)
        self._failures.pop(sequence, None)

    def _gauges(self, logged: int | None = None) -> Gauges:
        return Gauges(len(self.running), len(self.waiting), self.pool.used, logged)


def _by_arrival(sequence: Sequence) -> tuple[float, int]:
    return sequence.arrival, sequence.order
