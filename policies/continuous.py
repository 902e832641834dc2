"""Continuous batching, plain: a running set over a block pool, with the usual choices as options."""

import math
from collections.abc import Collection, Mapping, Sequence as Ids
from typing import Any, ClassVar, Literal

from .admission import Admission
from .base import Chunk, DecodeBatch, EngineConfig, Gauges, Policy, Sequence, Step
from .continuous_options import ContinuousOptions
from .door import too_large, too_long
from .joining import Joining
from .kv.block_pool import BlockPool
from .kv.cached_blocks import CachedBlocks
from .kv.growth import Growth
from .kv.late_pool import LatePool
from .plan import Plan
from .waiting_queues import ByPrefix, ByPriority, Fcfs, WaitingQueue

__all__ = ["Blocked", "Continuous", "ContinuousOptions"]

Blocked = Literal["", "seats", "budget", "prompt over budget", "memory", "preempted", "not ready", "not joining"]
PASSED_OVER: frozenset[Blocked] = frozenset({"memory", "not ready"})


class Continuous(Policy):
    """Each running sequence decodes every step; prompts are prefilled with what the token budget leaves.

    Admission goes by `order` and stops at the first request that does not fit (see `admission`); each chunk takes its
    own blocks. When blocks run out, one sequence is preempted (its KV is dropped, it goes to the front of the queue
    and is computed again), and nobody is admitted in that step.

    A subclass may override `ready`, for requests that have to wait for something else.
    """

    Options = ContinuousOptions
    engine_defaults: ClassVar[Mapping[str, Any]] = {"max_num_seqs": 256, "max_num_batched_tokens": 2048}

    def __init__(self, engine: EngineConfig, options: ContinuousOptions) -> None:
        super().__init__(engine, options)
        self.choice = options
        self.stall_after = Policy.stall_after + options.free_delay
        if not options.reject_oversize:
            self.exempt |= {"door"}
        if options.priority_preempts_for_slot and options.order != "priority":
            raise ValueError("policy.priority_preempts_for_slot needs policy.order: priority")
        self.budget = engine.max_num_batched_tokens or math.inf
        self.seats = self._seats(engine)
        self.pool = self.ledger = self._pool(engine)
        self.blocks = CachedBlocks(self.pool, caching=options.prefix_cache)
        self.waiting: WaitingQueue = self._queue()
        self.running: dict[Sequence, None] = {}
        self.prefilling: dict[Sequence, None] = {}
        self.held_back: dict[Sequence, None] = {}
        self.decoding = DecodeBatch()
        self.growth = Growth(self.decoding, engine.block_size)
        self.admission = Admission(options.admission, self.blocks, options.watermark)
        self.joining = Joining(options.waiting_served_ratio, options.max_waiting_tokens)
        self._passes = 0
        self._longest_blocked: tuple[Sequence, int] | None = None
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

    def _pool(self, engine: EngineConfig) -> BlockPool:
        choice = self.choice
        if not choice.free_delay:
            return BlockPool(engine.num_blocks, engine.block_size, head_first=choice.free_order == "head_first")
        if choice.prefix_cache:
            raise ValueError("policy.free_delay needs policy.prefix_cache: false")
        return LatePool(engine.num_blocks, engine.block_size, delay=choice.free_delay)

    def _queue(self) -> WaitingQueue:
        choice, size = self.choice, self.pool.block_size
        if choice.order == "priority":
            return ByPriority(choice.preempted_first)
        if choice.order == "longest_prefix":
            return ByPrefix(lambda sequence: len(self.blocks.hit(sequence)) * size, choice.ageing)
        return Fcfs()

    def add(self, sequence: Sequence) -> str | None:
        reason = self._too_long(sequence)
        if reason is None and self.choice.reject_oversize:
            reason = too_large(sequence, self.pool.usable, self.pool.block_size)
        if reason is None:
            self.waiting.add(sequence)
        return reason

    def ready(self, sequence: Sequence) -> bool:
        """Whether a waiting request may start, as far as this policy does not know; one that may not is passed over."""
        return True

    def _too_long(self, sequence: Sequence) -> str | None:
        # A preempted sequence comes back with its output, so the longest prompt is one token short of the end.
        longest = sequence.prompt_len + max(sequence.max_tokens, 1) - 1
        if not self.choice.chunked_prefill and longest > self.budget:
            return f"up to {longest} tokens at once, max_num_batched_tokens is {self.budget} and prefill is not chunked"
        return too_long(sequence, self.engine.max_model_len)

    def schedule(self, now: float) -> Step:
        plan = Plan(self.budget)
        if isinstance(self.pool, LatePool):
            self.pool.tick()
        if self.choice.batching == "mixed":
            self._decode(plan)
            self._prefill(plan)
        elif not self._prefill_first(plan):
            self._decode(plan)
        return plan.step(self._gauges())

    # Decode

    def _decode(self, plan: Plan) -> None:
        self._take_up()
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
        """Preempt until every decoding sequence that needs a block can have one, or will once it arrives."""
        while True:
            wanting = [sequence for sequence in due if sequence in self.decoding]
            short = len(wanting) - self.pool.free
            if short <= 0:
                return
            if short <= self._coming():
                return self._hold_back(wanting[-short:])
            self._preempt(plan, self._victim())

    def _coming(self) -> int:
        return self.pool.coming if isinstance(self.pool, LatePool) and self.choice.wait_for_freed else 0

    def _hold_back(self, sequences: list[Sequence]) -> None:
        """They do not decode in this step."""
        for sequence in sequences:
            self.decoding.leave(sequence)
            self.held_back[sequence] = None

    def _take_up(self) -> None:
        for sequence in self.held_back:
            self.decoding.join(sequence)
            self.growth.watch(sequence)
        self.held_back.clear()

    def _grow(self, sequence: Sequence) -> list[int]:
        block = self.pool.allocate(1)
        sequence.block_table += block
        self.growth.watch(sequence)
        return block

    # Prefill

    def _prefill_first(self, plan: Plan) -> bool:
        """A step of prompts, if it is time for one and any can run."""
        if self.prefilling or self.joining.due(len(self.waiting), len(self.running)):
            self._prefill(plan)
        else:
            self._blocked = "not joining"
        if plan.chunks:
            self.joining.joined()
        elif self.waiting:
            self.joining.decoded()
        return bool(plan.chunks)

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
            end = sequence.computed + self._cut(sequence.uncomputed, plan)
            if self.blocks.missing(sequence, end) <= self.pool.free:
                return True
            if self.blocks.missing(sequence, end) <= self.pool.free + self._coming():
                return False
            self._preempt(plan, self._victim())
        return False

    def _limit(self, plan: Plan) -> int | None:
        """Most tokens that one request may prefill now."""
        limit = min(plan.budget, self.choice.long_prefill_token_threshold or math.inf)
        return None if limit == math.inf else int(limit)

    def _cut(self, tokens: int, plan: Plan) -> int:
        limit = self._limit(plan)
        return tokens if limit is None else min(tokens, limit)

    # Admission

    def _admit(self, plan: Plan) -> None:
        self._passes += 1
        self._blocked = "preempted" if plan.preempted else ""
        self.waiting.begin_pass(self._passes)
        passed: list[Sequence] = []
        while self.waiting and not self._blocked:
            head = self.waiting.first
            blocked = self._blocked = self._admit_head(plan, plan.look(head))
            if blocked in PASSED_OVER and self._may_pass(head, blocked):
                self._blocked = ""
                passed.append(self.waiting.take())
        if passed:
            self._blocked = self._blocked or ("memory" if all(map(self.ready, passed)) else "not ready")
            self.waiting.restore(passed)

    def _admit_head(self, plan: Plan, head: Sequence) -> Blocked:
        if len(self.running) >= self.seats and not self._outranked(head):
            return "seats"
        if plan.budget <= 0:
            return "budget"
        if not self.ready(head):
            return "not ready"
        if self._no_room == (head, self.pool.changes):
            return "memory"
        hit = self.blocks.hit(head)
        cached = len(hit) * self.pool.block_size
        rest = head.num_tokens - cached
        if not self.choice.chunked_prefill and rest > plan.budget:
            return "prompt over budget"
        if not self.admission.fits(head, hit, cached + self._cut(rest, plan), self.running):
            self._no_room = (head, self.pool.changes)
            return "memory"
        self._leaves_queue(head)
        self._start(plan, head, hit)
        return ""

    def _may_pass(self, head: Sequence, blocked: Blocked) -> bool:
        """The request that has been blocked first may be passed over only so often; the others any time."""
        if blocked == "not ready":
            return True
        if not self.choice.skip_blocked_head:
            return False
        if self._longest_blocked is None:
            self._longest_blocked = (head, self._passes)
        first, since = self._longest_blocked
        return head is not first or self.choice.skip_passes is None or self._passes - since < self.choice.skip_passes

    def _leaves_queue(self, sequence: Sequence) -> None:
        self.waiting.remove(sequence)
        if self._longest_blocked is not None and self._longest_blocked[0] is sequence:
            self._longest_blocked = None

    def _start(self, plan: Plan, sequence: Sequence, hit: list[int]) -> None:
        if len(self.running) >= self.seats:
            self._take_seat(plan)
        cached = len(hit) * self.pool.block_size
        end = cached + self._cut(sequence.num_tokens - cached, plan)
        plan.new_blocks[sequence] = list(self.blocks.start(sequence, end, hit))
        plan.admit(sequence)
        plan.add(Chunk.rest(sequence, cached=cached, limit=self._limit(plan), prefill=True))
        if self.choice.prefix_cache:
            plan.prefix_queries += sequence.num_tokens
            plan.prefix_hits += cached
        self.running[sequence] = self.prefilling[sequence] = None

    # Preemption

    def _outranked(self, head: Sequence) -> bool:
        """Some running sequence must give its seat to a more urgent request."""
        return self.choice.priority_preempts_for_slot and self._victim().priority > head.priority

    def _take_seat(self, plan: Plan) -> None:
        victim = self._victim()
        plan.budget += victim in self.decoding
        self._preempt(plan, victim, "a more urgent request needs its seat")

    def _victim(self) -> Sequence:
        if self.choice.order == "priority":
            return max(self.running, key=lambda sequence: (sequence.priority, sequence.arrival))
        return next(iter(self.running) if self.choice.victim == "first" else reversed(self.running))

    def _preempt(self, plan: Plan, victim: Sequence, reason: str = "no free block") -> None:
        self._let_go(victim)
        plan.drop(victim)
        plan.preempted.append((victim, reason))
        victim.drop_kv()
        self.waiting.put_back(victim)

    def _let_go(self, sequence: Sequence) -> None:
        del self.running[sequence]
        self.prefilling.pop(sequence, None)
        self.held_back.pop(sequence, None)
        if sequence in self.decoding:
            self.decoding.leave(sequence)
        self.blocks.publish(sequence, sequence.computed)
        self.blocks.free(sequence)

    # After the forward

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
            self._leaves_queue(sequence)
        self.blocks.forget(sequence)

    def idle(self) -> None:
        if isinstance(self.pool, LatePool):
            self.pool.settle()

    # Several steps at once

    def horizon(self, step: Step) -> int:
        plain = len(step.forwards) == 1 and not step.forwards[0].chunks and not step.preempted and not self.prefilling
        return self.growth.steps_within(self.pool.free) if plain and self._stays_blocked() else 0

    def _stays_blocked(self) -> bool:
        """Nobody waiting could be admitted while the running only decode. A lookup may find new blocks any time."""
        if isinstance(self.pool, LatePool):
            return False
        if not self.waiting or self._blocked in ("seats", "budget"):
            return self.joining.steady or not self.waiting
        return self._blocked in ("memory", "prompt over budget") and not self.choice.prefix_cache

    def extend(self, step: Step, steps: int) -> list[int]:
        used, now = [], self.pool.used
        self._passes += steps
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
