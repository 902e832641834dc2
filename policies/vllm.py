"""vLLM's scheduler (version 0.27.1): first come first served or by priority, over a block pool with a prefix cache."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence as Ids
from typing import Any, ClassVar

from .base import Chunk, EngineConfig, Forward, Gauges, Policy, Sequence, Step
from .door import too_large
from .kv.block_pool import BlockPool
from .kv.cached_blocks import CachedBlocks
from .plan import Plan
from .vllm_options import VllmOptions, check, server_defaults
from .vllm_queue import ArrivalQueue, PriorityQueue, Queue
from .vllm_running import Running


class Vllm(Policy):
    """vLLM's V1 scheduler, step for step.

    There are no phases: whoever runs catches up its computed tokens with those it has, in order of admission; then
    the queue is served while budget, seats and blocks last, strictly in its order. Who finds no block preempts the
    last (of the running, or in priority) and no one is admitted in that step. Blocks are found by their content as
    soon as they are scheduled. `num_blocks` includes the null block.

    Limits left out are what a server takes on the device: 1,024 sequences and 8,192 tokens on one of 70 GiB or more
    that is no A100, else 256 and 2,048. `add` refuses what a server's door refuses, and cuts `max_tokens` to what
    `max_model_len` leaves.

    Who arrives in one instant has an order here, as in a server, which stamps requests one by one; the bare scheduler
    (`strict_vllm`) has rules of its own for equal times, with which two equals can preempt each other for ever.
    """

    Options = VllmOptions
    engine_defaults: ClassVar[Mapping[str, Any]] = {"max_num_seqs": 256, "max_num_batched_tokens": 2048}
    log_style: ClassVar[str] = "vllm"

    waiting: Queue
    running: Running

    def __init__(self, engine: EngineConfig, options: VllmOptions) -> None:
        limits = server_defaults(engine.model_dump(), options.model_dump(), "", 0)  # where null was given
        engine = engine.model_copy(update=limits)
        super().__init__(engine, options)
        self.choice = options
        self.overlap = options.async_scheduling
        self.budget, self.seats = limits["max_num_batched_tokens"], limits["max_num_seqs"]
        self.longest = engine.max_model_len or math.inf
        self.threshold = options.long_prefill_token_threshold or math.inf
        check(engine, options, self.budget, self.seats)
        by_priority = options.scheduling_policy == "priority"
        self.waiting = PriorityQueue(by_id=options.strict_vllm) if by_priority else ArrivalQueue()
        self.running = Running(engine.block_size, overlap=self.overlap)
        self._decodes = (Forward((), self.running.batch),)
        self.pool = self.ledger = BlockPool(
            engine.num_blocks - 1, engine.block_size, first_id=1, unhashed_first=options.enable_prefix_caching
        )
        self.blocks = CachedBlocks(self.pool, caching=options.enable_prefix_caching)
        self.spare = int(options.watermark * engine.num_blocks)
        self.refused: Sequence | None = None  # looked up in the latest step, but not admitted
        self._refusal: tuple[Sequence | None, int, int | None] = (None, 0, None)
        self._spanned: list[Sequence] = []  # given blocks by `extend` since the last commit
        self._spans = False
        self._last = Gauges(0, 0)
        self._dropped: dict[Sequence, int] = {}  # preempted since the last commit: their seats
        self._passed: set[Sequence] = set()  # running, but not looked at in the latest step
        if options.strict_vllm:
            self.exempt |= {"door"}

    @classmethod
    def defaults(cls, given: Mapping[str, Any], options: Mapping[str, Any], device: str, memory: float) -> (
        Mapping[str, Any]
    ):
        return server_defaults(given, options, device, memory)

    def notes(self) -> list[str]:
        """Says how a step relates to the output of the one ahead of it."""
        return ["async scheduling: " + ("on, as a vLLM server has it" if self.overlap else "off")]

    def add(self, sequence: Sequence) -> str | None:
        if not self.choice.strict_vllm and sequence.prompt_len >= self.longest:
            return f"prompt {sequence.prompt_len} leaves no room for output in max_model_len {self.longest}"
        if sequence.prompt_len < self.longest:
            sequence.max_tokens = int(min(sequence.max_tokens, self.longest - sequence.prompt_len))
        reason = None if self.choice.strict_vllm else self._unservable(sequence)
        if reason is None:
            self.waiting.push(sequence)
        return reason

    def _unservable(self, sequence: Sequence) -> str | None:
        # A preempted sequence comes back with its output, so the longest prompt is one token short of the end.
        longest = sequence.prompt_len + max(sequence.max_tokens, 1) - 1
        if not self.choice.enable_chunked_prefill and min(longest, self.threshold) > self.budget:
            return f"up to {longest} tokens at once, max_num_batched_tokens is {self.budget} and prefill is not chunked"
        return too_large(sequence, self.pool.usable, self.pool.block_size)

    def schedule(self, now: float) -> Step:
        self.refused = None
        due = self._due()
        if not self._all_decode(due):
            plan = Plan(self.budget)
            self._run(plan, due)
        else:
            new_blocks = self._decode(due)
            if self._shut():
                return self._same_again(new_blocks)
            plan = Plan(self.budget - len(self.running.batch), new_blocks=new_blocks)
        while not plan.preempted and self._may_admit(plan) and self._admit(plan):
            pass
        return self._launch(plan)

    # Those that run

    def _due(self) -> list[Sequence]:
        """Members of the decode batch that need a block for their next token. Whoever has its last token in flight
        leaves the batch."""
        if self.overlap:
            for sequence in self.running.finishing():
                self.running.step_out(sequence)
        return self.running.growth.take(self.running.batch.flying)

    def _all_decode(self, due: list[Sequence]) -> bool:
        """Whoever runs is in the decode batch, and finds a block."""
        return not self.running.others and len(due) <= self.pool.free and bool(self.running.batch.members)

    def _decode(self, due: list[Sequence]) -> dict[Sequence, list[int]]:
        """The decode batch runs. Gives the blocks that its members get."""
        running = self.running
        new_blocks = self._grow(running.in_order(due)) if due else {}
        if self.choice.enable_prefix_caching:
            for sequence in running.in_order(due if self.overlap else running.growth.peek(1)):
                self.blocks.publish(sequence, sequence.num_tokens)
        return new_blocks

    def _shut(self) -> bool:
        """Nobody can be admitted beside the decode batch."""
        return not self.waiting or self._full() or self._still_refused()

    def _full(self) -> bool:
        """No seat is left, or no token of the budget beside the decode batch."""
        return len(self.running.seats) >= self.seats or len(self.running.batch.members) >= self.budget

    def _same_again(self, new_blocks: dict[Sequence, list[int]]) -> Step:
        """The step of the decode batch alone."""
        if self.overlap:
            self.running.batch.launch()
            self.running.flying.clear()
        return Step(self._gauges(), self._decodes, new_blocks=new_blocks)

    def _grow(self, due: list[Sequence]) -> dict[Sequence, list[int]]:
        new_blocks = {}
        for sequence, block in zip(due, self.pool.allocate(len(due)), strict=True):
            sequence.block_table.append(block)
            new_blocks[sequence] = [block]
        self.running.growth.renew(due)
        return new_blocks

    def _run(self, plan: Plan, due: list[Sequence]) -> None:
        visits = self._visits(due)
        plan.budget -= len(self.running.batch)
        self._passed.clear()
        for sequence in visits:
            if sequence in self.running and sequence not in self._passed:
                self._advance(plan, sequence)

    def _visits(self, due: list[Sequence]) -> list[Sequence]:
        """Whom to look at, in order: those that need a block or fill one, and all that are not in the decode batch.

        The decode batch needs no look: the budget reaches for whoever decoded before. What those ahead of it ask for
        only shrinks, since nobody is admitted ahead of it and a prefill asks for the same until its end; and what was
        asked for behind it was cut, if the budget had to.
        """
        filling = self.running.growth.peek(1) if self.choice.enable_prefix_caching and not self.overlap else ()
        return self.running.in_order([*due, *filling, *self.running.others])

    def _wanted(self, sequence: Sequence) -> int:
        """Tokens that a running sequence would compute with no other limit than its own."""
        start, known = self.running.position(sequence)
        if self.running.sampling(sequence) and known >= sequence.prompt_len + sequence.max_tokens:
            return 0  # its token in flight is its last
        return int(min(known - start, self.threshold))

    def _advance(self, plan: Plan, sequence: Sequence) -> None:
        """Schedule the next tokens of a running sequence."""
        member = sequence in self.running.batch
        start, known = self.running.position(sequence)
        length = 1 if member else int(min(self._wanted(sequence), plan.budget))
        if not length or not self._make_room(plan, sequence, start + length):
            return
        blocks = self.blocks.grow(sequence, start + length)
        if blocks:
            plan.new_blocks[sequence] = blocks
        if member:
            self.running.growth.watch(sequence)
        else:
            decode = known > sequence.prompt_len and known - start == 1
            plan.add(Chunk(sequence, start, length, 0, start + length == known, decode))
        self.blocks.publish(sequence, min(start + length, sequence.num_tokens))

    def _make_room(self, plan: Plan, sequence: Sequence, tokens: int) -> bool:
        """Preempt until a running sequence has blocks for `tokens` tokens; False if that took the sequence itself, and
        with it the turn of all behind it."""
        ahead = 0  # victims ahead of it that had got nothing in this step
        while self.blocks.missing(sequence, tokens) > self.pool.free:
            victim = self._victim()
            if victim is sequence:
                self._pass_over(plan, self.running.behind(sequence))
                self._preempt(plan, victim)
                return False
            ahead += self.running.seat(victim) < self.running.seat(sequence) and not self._runs(plan, victim)
            self._preempt(plan, victim)
        # The engine's index into its list does not go back for those, so that it jumps over as many behind.
        self._pass_over(plan, self.running.behind(sequence)[:ahead] if ahead else ())
        return True

    def _pass_over(self, plan: Plan, sequences: Iterable[Sequence]) -> None:
        """These get nothing in this step."""
        for sequence in sequences:
            self._passed.add(sequence)
            if sequence in self.running.batch:
                self.running.step_out(sequence)
                plan.budget += 1

    def _runs(self, plan: Plan, sequence: Sequence) -> bool:
        return sequence in self.running.batch or any(chunk.sequence is sequence for chunk in plan.chunks)

    def _victim(self) -> Sequence:
        if self.choice.scheduling_policy == "fcfs":
            return self.running.last
        if self.choice.strict_vllm:  # the first of equals, though a server gives no two requests the same arrival time
            return max(self.running, key=lambda sequence: (sequence.priority, sequence.arrival))
        return max(self.running, key=lambda sequence: (sequence.priority, sequence.arrival, sequence.order))

    def _preempt(self, plan: Plan, victim: Sequence) -> None:
        plan.budget += victim in self.running.batch
        plan.budget += sum(chunk.length for chunk in plan.chunks if chunk.sequence is victim)
        plan.drop(victim)
        plan.preempted.append((victim, "no free block"))
        self._dropped[victim] = self.running.remove(victim, owed=True)
        self.blocks.free(victim)
        victim.drop_kv()
        self.waiting.put_back(victim)

    # Those that wait

    def _may_admit(self, plan: Plan) -> bool:
        return len(self.waiting) > 0 and plan.budget > 0 and len(self.running) < self.seats

    def _admit(self, plan: Plan) -> bool:
        """Admit the head of the queue, if it fits."""
        head = plan.look(self.waiting[0])
        if self._still_refused():
            return False
        hit = self.blocks.hit(head)
        cached = len(hit) * self.pool.block_size
        length = int(min(head.num_tokens - cached, self.threshold))
        if length > plan.budget and not self.choice.enable_chunked_prefill:
            self.refused = head
            return False
        length = int(min(length, plan.budget))
        spare = self.spare if len(self.running) else 0
        if self.choice.scheduler_reserve_full_isl and not self.blocks.fits(head.num_tokens, hit, spare):
            self._refuse(head, len(hit))
            return False
        if not self.blocks.fits(cached + length, hit, spare):
            self.refused = head
            return False
        self._start(plan, self.waiting.take(), hit, length)
        return True

    def _refuse(self, head: Sequence, hit: int) -> None:
        """There are too few blocks for all of it. That stays so until blocks are freed or its hit grows longer."""
        self.refused = head
        self._refusal = (head, self.pool.freed, self.blocks.next_hash(head, hit))

    def _still_refused(self) -> bool:
        head, freed, next_hash = self._refusal
        if head is not self.waiting[0] or freed != self.pool.freed or self.pool.knows(next_hash):
            return False
        self.refused = head
        return True

    def _start(self, plan: Plan, sequence: Sequence, hit: list[int], length: int) -> None:
        cached = len(hit) * self.pool.block_size
        plan.new_blocks[sequence] = list(self.blocks.start(sequence, cached + length, hit))
        plan.admit(sequence)
        plan.add(Chunk(sequence, cached, length, cached, cached + length == sequence.num_tokens))
        self.blocks.publish(sequence, cached + length)
        self.running.admit(sequence)
        if self.choice.enable_prefix_caching and not sequence.preemptions:
            plan.prefix_queries += sequence.num_tokens
            plan.prefix_hits += cached

    # Both

    def _launch(self, plan: Plan) -> Step:
        running = self.running
        for chunk in plan.chunks:
            if chunk.decode and running.may_join(chunk.sequence):
                running.join(chunk.sequence)
        plan.chunks = [chunk for chunk in plan.chunks if chunk.sequence not in running.batch]
        if plan.chunks or running.batch:
            plan.decode = running.batch
            if self.overlap:
                running.batch.launch()
        running.flying = {chunk.sequence: chunk for chunk in plan.chunks} if self.overlap else {}
        return plan.step(self._gauges())

    def commit(self, step: Step, sampled: Mapping[Sequence, Ids[int]], stopped: Collection[Sequence]) -> Gauges:
        if step.forwards is not self._decodes or self.running.owed:
            chunks = step.forwards[0].chunks if step.forwards else ()
            for chunk in (*chunks, *self.running.owed):
                self._settle(chunk, sampled)
            self.running.owed.clear()
        if step.forwards:
            self.running.batch.advance(sampled)
        if self._spans:
            self._publish_span()
        for sequence in sorted(stopped, key=self._seat) if len(stopped) > 1 else stopped:
            self._end(sequence)
        self._dropped.clear()
        return self._gauges()

    def _settle(self, chunk: Chunk, sampled: Mapping[Sequence, Ids[int]]) -> None:
        """A row was computed. One that was preempted meanwhile only takes its token, one that ended nothing."""
        sequence = chunk.sequence
        if sequence in self._dropped:
            if chunk.samples:
                sequence.append(sampled[sequence])
        elif sequence in self.running and sequence not in self.running.batch:
            sequence.computed = chunk.end
            if chunk.samples:
                sequence.append(sampled[sequence])
                self.blocks.publish(sequence, chunk.end)

    def _seat(self, sequence: Sequence) -> int:
        return self.running.seat(sequence) if sequence in self.running else self._dropped.get(sequence, -1)

    def _end(self, sequence: Sequence) -> None:
        if sequence in self.running:
            self.running.remove(sequence)
            self.blocks.free(sequence)
        elif sequence in self._dropped:
            self.waiting.remove(sequence)
        self.blocks.forget(sequence)

    def abort(self, sequence: Sequence) -> None:
        if sequence in self.running:
            self.running.remove(sequence)
            self.blocks.free(sequence)
        else:
            self.waiting.remove(sequence)
        self.blocks.forget(sequence)

    def horizon(self, step: Step) -> int:
        plain = step.forwards is self._decodes and not self.running.others and not self.running.owed
        return self.running.growth.steps_within(self.pool.free) if plain and self._stays_shut() else 0

    def _stays_shut(self) -> bool:
        """Nobody waiting could be admitted while the running only decode, whatever blocks they publish."""
        return not self.waiting or self._full() or (self._still_refused() and self._refusal[2] is None)

    def extend(self, step: Step, steps: int) -> list[int]:
        used, now = [], self.pool.used
        for ahead in range(1, steps + 1):
            due = self.running.growth.take(ahead)
            if due:
                self._grow(self.running.in_order(due))
                self._spanned += due
            now += len(due)
            used.append(now)
        if self.overlap:
            self.running.batch.launch()  # the last of them stays in flight
        self._spans = True
        return used

    def _publish_span(self) -> None:
        if self.choice.enable_prefix_caching:
            for sequence in (*self._spanned, *self.running.growth.peek()):
                self.blocks.publish(sequence, sequence.computed)
        self._spanned.clear()
        self._spans = False

    def _gauges(self) -> Gauges:
        last, used = self._last, self.pool.used
        running, waiting = len(self.running.seats), len(self.waiting)
        if last.kv_used != used or last.running != running or last.waiting != waiting:
            self._last = Gauges(running, waiting, used)
        return self._last
