"""Continuous batching, plain: first come first served over a block pool, with the usual choices as options."""

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence as Ids
from typing import Any, ClassVar, Literal

from pydantic import Field

from .base import Chunk, DecodeBatch, EngineConfig, Gauges, Options, Policy, Sequence, Step
from .door import too_large, too_long
from .kv.block_pool import BlockPool
from .kv.cached_blocks import CachedBlocks
from .kv.growth import Growth
from .plan import Plan

Blocked = Literal["", "seats", "budget", "prompt over budget", "memory", "preempted"]


class ContinuousOptions(Options):
    """Options of `continuous`."""

    batching: Literal["mixed", "prefill_first"] = Field(
        "mixed", description="decode and prefill share a step, or a step prefills while anything can"
    )
    chunked_prefill: bool = Field(True, description="a prompt may be cut to what the token budget leaves")
    victim: Literal["last", "first"] = Field("last", description="who is preempted when blocks run out")
    prefix_cache: bool = Field(True, description="computed blocks are found again by their content")


class Continuous(Policy):
    """Each running sequence decodes every step; prompts are prefilled with what the token budget leaves.

    Admission is in order of arrival and stops at the first request that does not fit: it must find blocks for its
    whole prompt, of which each chunk takes its own. When blocks run out, one sequence is preempted (its KV is
    dropped, it goes to the front of the queue and is computed again), and nobody is admitted in that step.
    """

    Options = ContinuousOptions
    engine_defaults: ClassVar[Mapping[str, Any]] = {"max_num_seqs": 256, "max_num_batched_tokens": 2048}

    def __init__(self, engine: EngineConfig, options: ContinuousOptions) -> None:
        super().__init__(engine, options)
        self.choice = options
        self.budget = engine.max_num_batched_tokens or math.inf
        self.seats = self._seats(engine)
        self.waiting: deque[Sequence] = deque()
        self.running: dict[Sequence, None] = {}
        self.prefilling: dict[Sequence, None] = {}
        self.decoding = DecodeBatch()
        self.pool = self.ledger = BlockPool(engine.num_blocks, engine.block_size)
        self.blocks = CachedBlocks(self.pool, caching=options.prefix_cache)
        self.growth = Growth(self.decoding, engine.block_size)
        self._blocked: Blocked = ""
        self._no_room: tuple[Sequence, int] | None = None
        self._grown: list[Sequence] = []

    def _seats(self, engine: EngineConfig) -> float:
        if engine.max_num_seqs is not None and self.budget < engine.max_num_seqs:
            raise ValueError(
                f"engine.max_num_batched_tokens ({self.budget}) is below engine.max_num_seqs ({engine.max_num_seqs}): "
                "a step must hold one token of every running sequence"
            )
        return engine.max_num_seqs or self.budget

    def add(self, sequence: Sequence) -> str | None:
        reason = too_large(sequence, self.pool.usable, self.pool.block_size) or self._too_long(sequence)
        if reason is None:
            self.waiting.append(sequence)
        return reason

    def _too_long(self, sequence: Sequence) -> str | None:
        # A preempted sequence comes back with its output, so the longest prompt is one token short of the end.
        longest = sequence.prompt_len + max(sequence.max_tokens, 1) - 1
        if not self.choice.chunked_prefill and longest > self.budget:
            return f"up to {longest} tokens at once, max_num_batched_tokens is {self.budget} and prefill is not chunked"
        return too_long(sequence, self.engine.max_model_len)

    def schedule(self, now: float) -> Step:
        plan = Plan(self.budget)
        if self.choice.batching == "mixed":
            self._decode(plan)
        self._prefill(plan)
        if self.choice.batching == "prefill_first" and not plan.chunks:
            self._decode(plan)
        return plan.step(self._gauges())

    def _decode(self, plan: Plan) -> None:
        due = self.growth.take()
        if len(due) > self.pool.free:
            self._make_room(plan, due)
        for sequence in due:
            if sequence in self.decoding:
                plan.new_blocks[sequence] = self._grow(sequence)
        if self.decoding:
            plan.decode = self.decoding
            plan.budget -= len(self.decoding)

    def _make_room(self, plan: Plan, due: list[Sequence]) -> None:
        """Preempt until every decoding sequence that needs a block can have one."""
        while sum(1 for sequence in due if sequence in self.decoding) > self.pool.free:
            self._preempt(plan)

    def _grow(self, sequence: Sequence) -> list[int]:
        block = self.pool.allocate(1)
        sequence.block_table += block
        self.growth.watch(sequence)
        return block

    def _prefill(self, plan: Plan) -> None:
        for sequence in list(self.prefilling):
            if plan.budget > 0 and self._room_for_chunk(plan, sequence):
                chunk = Chunk.rest(sequence, limit=self._limit(plan), prefill=True)
                plan.new_blocks[sequence] = self.blocks.grow(sequence, chunk.end)
                plan.add(chunk)
        self._admit(plan)

    def _room_for_chunk(self, plan: Plan, sequence: Sequence) -> bool:
        """Preempt until the next chunk of a half-prefilled sequence fits; False if that took the sequence itself."""
        while sequence in self.prefilling:
            end = sequence.computed + min(sequence.uncomputed, plan.budget)
            if self.blocks.missing(sequence, int(end)) <= self.pool.free:
                return True
            self._preempt(plan)
        return False

    def _admit(self, plan: Plan) -> None:
        self._blocked = "preempted" if plan.preempted else ""
        while self.waiting and not self._blocked:
            self._blocked = self._admit_head(plan)

    def _admit_head(self, plan: Plan) -> Blocked:
        head = self.waiting[0]
        if len(self.running) >= self.seats:
            return "seats"
        if plan.budget <= 0:
            return "budget"
        if self._no_room == (head, self.pool.changes):
            return "memory"
        hit = self.blocks.hit(head)
        rest = head.num_tokens - len(hit) * self.pool.block_size
        if not self.choice.chunked_prefill and rest > plan.budget:
            return "prompt over budget"
        if not self.blocks.fits(head.num_tokens, hit):
            self._no_room = (head, self.pool.changes)
            return "memory"
        self._start(plan, self.waiting.popleft(), hit)
        return ""

    def _start(self, plan: Plan, sequence: Sequence, hit: list[int]) -> None:
        cached = len(hit) * self.pool.block_size
        length = min(sequence.num_tokens - cached, plan.budget)
        plan.new_blocks[sequence] = list(self.blocks.start(sequence, int(cached + length), hit))
        plan.admit(sequence)
        plan.add(Chunk.rest(sequence, cached=cached, limit=self._limit(plan), prefill=True))
        if self.choice.prefix_cache:
            plan.prefix_queries += sequence.num_tokens
            plan.prefix_hits += cached
        self.running[sequence] = self.prefilling[sequence] = None

    def _limit(self, plan: Plan) -> int | None:
        return None if plan.budget == math.inf else int(plan.budget)

    def _preempt(self, plan: Plan) -> None:
        victim = next(iter(self.running) if self.choice.victim == "first" else reversed(self.running))
        self._let_go(victim)
        plan.drop(victim)
        plan.preempted.append((victim, "no free block"))
        victim.drop_kv()
        self.waiting.appendleft(victim)

    def _let_go(self, sequence: Sequence) -> None:
        del self.running[sequence]
        self.prefilling.pop(sequence, None)
        if sequence in self.decoding:
            self.decoding.leave(sequence)
        self.blocks.publish(sequence, sequence.computed)
        self.blocks.free(sequence)

    def commit(self, step: Step, sampled: Mapping[Sequence, Ids[int]], stopped: Collection[Sequence]) -> Gauges:
        step.settle(sampled)
        for forward in step.forwards:
            for chunk in forward.chunks:
                self._computed(chunk)
        self._publish_decoded()
        for sequence in stopped:
            self._let_go(sequence)
            self.blocks.forget(sequence)
        return self._gauges()

    def _computed(self, chunk: Chunk) -> None:
        sequence = chunk.sequence
        self.blocks.publish(sequence, sequence.computed)
        if chunk.samples:
            del self.prefilling[sequence]
            self.decoding.join(sequence)
            self.growth.watch(sequence)

    def _publish_decoded(self) -> None:
        if self.choice.prefix_cache:
            for sequence in (*self._grown, *self.growth.peek()):
                self.blocks.publish(sequence, sequence.computed)
            self._grown.clear()

    def abort(self, sequence: Sequence) -> None:
        if sequence in self.running:
            self._let_go(sequence)
        else:
            self.waiting.remove(sequence)
        self.blocks.forget(sequence)

    def horizon(self, step: Step) -> int:
        plain = len(step.forwards) == 1 and not step.forwards[0].chunks and not step.preempted and not self.prefilling
        return self.growth.steps_within(self.pool.free) if plain and self._stays_blocked() else 0

    def _stays_blocked(self) -> bool:
        """Nobody waiting could be admitted while the running only decode. A lookup may find new blocks any time."""
        if not self.waiting or self._blocked in ("seats", "budget"):
            return True
        return self._blocked in ("memory", "prompt over budget") and not self.choice.prefix_cache

    def extend(self, step: Step, steps: int) -> list[int]:
        used, now = [], self.pool.used
        for ahead in range(1, steps + 1):
            due = self.growth.take(ahead)
            for sequence in due:
                self._grow(sequence)
            if self.choice.prefix_cache:
                self._grown += due
            now += len(due)
            used.append(now)
        return used

    def _gauges(self) -> Gauges:
        return Gauges(len(self.running), len(self.waiting), self.pool.used)

