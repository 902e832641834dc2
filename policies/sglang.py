"""SGLang's scheduler, as of 0.5.18: prefill first, admission by an estimate of the output to come, retraction."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence as Ids
from typing import Any, ClassVar

from .base import Chunk, EngineConfig, Gauges, Policy, Sequence, Step
from .kv.token_cache import TokenCache
from .plan import Plan
from .sequence import Clock
from .sglang_admission import Admission, Grant, Verdict
from .sglang_door import STUB, Door, default_seats
from .sglang_memory import Memory
from .sglang_options import SglangOptions, check_chunk
from .sglang_order import Order
from .sglang_queue import Queue
from .sglang_ratio import NewTokenRatio
from .sglang_request import Request
from .sglang_rows import LastBatch, Launch, NewPages, Rows
from .sglang_standing import Row, Standing, decode_row


class Sglang(Policy):
    """SGLang's loop: every step is a prefill if anything can be admitted, else the running requests decode.

    The queue is looked at until a request does not fit the memory that the running ones are expected to need; then it
    is closed (`batch_is_full`) until somebody leaves. When a decode step finds no memory, the requests with the least
    output are retracted: they go to the end of the queue, with their output as part of the prompt. A request leaves
    the running batch in the step after it has finished. Prompts and outputs stay in a radix tree.

    Engine keys: `block_size` is SGLang's page_size, `num_blocks` its max_total_tokens in pages, `max_num_seqs` its
    max_running_requests, `max_model_len` its context length.
    """

    Options = SglangOptions
    engine_defaults: ClassVar[Mapping[str, Any]] = {"block_size": 1, "max_num_seqs": None}
    engine_keys: ClassVar[frozenset[str]] = frozenset(EngineConfig.model_fields) - {"max_num_batched_tokens"}
    log_style: ClassVar[str] = "sglang"
    delivers_in_flight: ClassVar[bool] = False
    stall_after = 50

    def __init__(self, engine: EngineConfig, options: SglangOptions) -> None:
        super().__init__(engine, options)
        check_chunk(options, engine)
        self.choice = options
        self.overlap = not options.disable_overlap_schedule
        self.mixes = options.enable_mixed_chunk and options.chunked_prefill_size != -1
        self.page = engine.block_size
        self.cache = self.ledger = TokenCache(engine.num_blocks, self.page, radix=not options.disable_radix_cache)
        self.door = Door(self.cache.pool.size, self.page, engine.max_model_len)
        self.seats = engine.max_num_seqs or default_seats(self.cache.pool.size, engine.max_model_len)
        self.free_seats = self.seats
        self.order = Order(options, self.cache)
        self.ratio = NewTokenRatio(options)
        self.launches = Clock()
        self.memory = Memory(self.cache, self.launches)
        self.requests: dict[Sequence, Request] = {}
        self.queue = Queue(options.max_queued_requests)
        self.waiting: list[Sequence] = self.queue.sequences
        self.running: dict[Sequence, None] = {}
        self.rows = Rows()
        self.chunked: Request | None = None
        self.last: LastBatch | None = None
        self.flying: deque[Launch] = deque()
        self.standing = Standing(self.flying)
        self._ends = 0

    # Arrivals

    def add(self, sequence: Sequence) -> str | None:
        if self.choice.ignore_eos:
            sequence.ignore_eos = True
        request = Request(sequence, self.launches)
        reason = self._let_in(request) or self.queue.push(sequence)
        if reason is None:
            self.requests[sequence] = request
        return reason

    def _let_in(self, request: Request) -> str | None:
        sequence, strict = request.sequence, self.choice.strict_sglang
        reason = None if strict else self.door.turns_away(sequence)
        if reason is None:
            request.refused = self.door.refuses(sequence)
            sequence.max_tokens = self.door.max_new_tokens(sequence)
            if request.refused:
                sequence.replace_prompt(STUB)
        return reason

    # Scheduling

    def schedule(self, now: float) -> Step:
        plan = Plan(0)
        self._stash()
        self._merge()
        return self._prefill(plan) or self._decode(plan) or plan.step(self._gauges(len(self.rows.members)))

    def _stash(self) -> None:
        """What the last chunk computed goes into the tree."""
        if self.chunked is not None and self.chunked.end > self.chunked.prefix:
            self._keep(self.chunked)

    def _keep(self, request: Request) -> None:
        self.cache.keep(request.sequence, request.end)
        request.prefix = request.end

    def _merge(self) -> None:
        """Requests of the last prefill join the running batch."""
        last, self.last = self.last, None
        if last is not None:
            apart = (self.chunked, last.chunked)
            joining = [request for request in last.rows if not request.finished and request not in apart]
            if len(joining) < len(last.rows):
                self.rows.full = False
            if joining and self.rows.members:
                self.rows.append(joining, prefill_only=last.prefill_only)
            elif joining:
                self.rows = Rows(joining, prefill_only=last.prefill_only)
        if self.rows.prefill_only:
            self.rows.filter(self._ends)
            if not self.rows.members:
                self.rows.full = False

    # The prefill step

    def _prefill(self, plan: Plan) -> Step | None:
        admission = self._admit(plan)
        if admission is None or not admission.granted:
            return None
        running = len(self.rows.members)
        for grant in admission.granted:
            if grant.fresh:
                self._enter(plan, grant)
        self.chunked = admission.chunked
        plan.new_blocks = self.memory.extend(admission.granted)
        pending = self.queue.tokens
        if self.chunked is not None:
            pending += self.chunked.sequence.num_tokens - self.chunked.end
        chunks = [(grant.request, self._chunk(grant)) for grant in admission.granted]
        plan.prefix_hits = admission.hit_tokens
        prefills = len(chunks)
        if self.mixes and self.rows.members:
            chunks += self._mix()
        rows = [request for request, _ in chunks]
        prefill_only = len(rows) == prefills and all(request.max_new_tokens == 0 for request in rows)
        self.last = LastBatch(rows, self.chunked, prefill_only)
        self.flying.append(Launch(rows, chunks, prefills, admission.logged_tokens, pending))
        plan.chunks = [chunk for _, chunk in chunks]
        return plan.step(self._gauges(running, admission.logged_tokens, pending))

    def _admit(self, plan: Plan) -> Admission | None:
        rows, chunked = self.rows, self.chunked
        if chunked is None:
            if rows.full or not self.waiting:
                return None
            if self._seats_left() <= 0:
                rows.full = True
                return None
        self.order.sort(self.waiting)
        mixed = len(rows.members) if self.mixes else 0
        admission = Admission(self.cache, self.choice, self.ratio.current, rows.members, mixed)
        if chunked is not None:
            if not self.choice.strict_sglang and admission.overcommits(chunked):
                self._give_up(plan, chunked, "SGLang would run out of memory in its next chunk")
                return self._admit(plan)
            admission.go_on(chunked)
        self._look_at_queue(admission)
        return admission

    def _seats_left(self) -> int:
        return min(self.seats - len(self.rows.members), self.free_seats)

    def _look_at_queue(self, admission: Admission) -> None:
        """In order, up to the first that is not let in."""
        taken, seats = 0, self._seats_left()
        for sequence in self.waiting:
            if len(admission.granted) >= seats:
                self.rows.full = True
            if self.rows.full:
                break
            before = len(admission.granted)
            verdict = admission.add(self.requests[sequence])
            taken += len(admission.granted) - before
            if verdict is not Verdict.CONTINUE:
                self.rows.full = self.rows.full or verdict is Verdict.NO_TOKEN
                break
        self.queue.take(taken)

    def _enter(self, plan: Plan, grant: Grant) -> None:
        request, sequence = grant.request, grant.request.sequence
        self.free_seats -= 1
        request.retracted = False
        if request.hit is None:
            request.hit = grant.start
        if self.cache.radix:
            plan.prefix_queries += sequence.num_tokens
        sequence.cached = sequence.computed = grant.start
        self.running[sequence] = None
        if request.refused:
            plan.rejected.append((sequence, request.refused))
        else:
            plan.admit(sequence)

    def _chunk(self, grant: Grant) -> Chunk:
        sequence, length = grant.request.sequence, grant.end - grant.start
        cached = grant.start if grant.fresh else 0
        return Chunk(sequence, grant.start, length, cached, grant.end == sequence.num_tokens)

    def _mix(self) -> list[Row]:
        """The running requests decode along; they go through the last batch like new ones."""
        self.rows.filter(self._ends)
        members = self.rows.members
        if members and not self._grow(members):
            return []
        rows = [decode_row(request) for request in members]
        for request in members:
            self.standing.step_out(request)
            request.kv += 1
        self.rows = Rows(full=self.rows.full)
        return rows

    def _grow(self, members: list[Request]) -> bool:
        """Pages for a decode that nobody has checked there is memory for."""
        try:
            self.memory.decode(members)
        except MemoryError:
            if self.choice.strict_sglang:
                raise self.memory.fault("Decode", len(members)) from None
            return False
        return True

    # The decode step

    def _decode(self, plan: Plan) -> Step | None:
        rows = self.rows
        if not rows.members or rows.prefill_only:
            return None
        before = len(rows.members)
        rows.filter(self._ends)
        if rows.members and self.memory.has_room(rows.members):
            self.ratio.step()
        elif rows.members:
            self._retract(plan)
        if len(rows.members) < before:
            rows.full = False
        if not rows.members:
            return None
        new_blocks = NewPages(*self.memory.decode(rows.members))
        forward, chunks = self.standing.forward(rows.members, overlap=self.overlap)
        self.launches.ticks += 1
        self.flying.append(Launch(rows.members, chunks, 0, len(rows.members)))
        return Step(
            self._gauges(len(rows.members), len(rows.members)), (forward,), preempted=plan.preempted,
            rejected=plan.rejected, new_blocks=new_blocks, events=plan.events,
        )

    def _retract(self, plan: Plan) -> None:
        """Those with the least output lose their memory, the longest prompt first; who stays is in that order now."""
        old_ratio, old_available = self.ratio.current, self.cache.available
        kept = sorted(self.rows.members, key=_progress, reverse=True)
        victims: list[Request] = []
        while len(kept) > 1 and not (victims and self.memory.has_room(kept)):
            victims.append(kept[-1])
            kept = kept[:-1]
            self._take_back(victims[-1])
            self.cache.make_room(len(kept) * self.choice.retract_decode_steps)
        if len(kept) == 1 and not self.memory.has_room(kept):
            self._give_up(plan, kept.pop(), "the last running request finds no memory to go on")
        self.rows.members = kept
        self.ratio.retract(kept)
        for request in victims:
            plan.preempted.append((request.sequence, "no memory for the next decode step"))
            reason = self.queue.push(request.sequence)
            if reason is not None:
                plan.rejected.append((request.sequence, reason))
                del self.requests[request.sequence]
        plan.events.append(
            f"KV cache pool is full. Retract requests. #retracted_reqs: {len(victims)}, #new_tokens_gained: "
            f"{self.cache.available - old_available}, #new_token_ratio: {old_ratio:.4f} -> {self.ratio.current:.4f}"
        )

    def _take_back(self, request: Request) -> None:
        sequence = request.sequence
        self.standing.leave(sequence)
        self._release(request)
        self.cache.drop(sequence)
        request.retracted = True
        sequence.drop_kv()

    def _give_up(self, plan: Plan, request: Request, why: str) -> None:
        self._take_back(request)
        self._end(request)
        self.chunked = None
        plan.rejected.append((request.sequence, why))

    def _release(self, request: Request) -> None:
        self.free_seats += 1
        del self.running[request.sequence]

    def _end(self, request: Request) -> None:
        request.finished = True
        self._ends += 1
        del self.requests[request.sequence]

    # Results

    def commit(self, step: Step, sampled: Mapping[Sequence, Ids[int]], stopped: Collection[Sequence]) -> Gauges:
        if step.empty:
            return self._gauges(len(self.rows.members))
        launch = self.flying.popleft()
        if launch.prefills:
            self._commit_prefill(launch, sampled, stopped)
        else:
            self._commit_decode(launch, sampled, stopped)
        return self._gauges(len(self.rows.members), launch.logged, launch.pending)

    def _commit_prefill(
        self, launch: Launch, sampled: Mapping[Sequence, Ids[int]], stopped: Collection[Sequence]
    ) -> None:
        for place, (request, chunk) in enumerate(launch.chunks):
            if request.gone:
                continue
            chunk.sequence.computed = chunk.end
            if not chunk.samples:
                continue
            chunk.sequence.append(sampled[chunk.sequence])
            if chunk.sequence in stopped or request.refused:
                self._finish(request)
            elif place < launch.prefills:
                self.cache.keep(chunk.sequence, chunk.end)
        self.standing.join()

    def _commit_decode(
        self, launch: Launch, sampled: Mapping[Sequence, Ids[int]], stopped: Collection[Sequence]
    ) -> None:
        self.standing.advance(launch, sampled)
        if stopped:
            done = set(stopped)
            for request in launch.rows:
                if request.sequence in done and not request.gone:
                    self._finish(request)

    def _finish(self, request: Request) -> None:
        self.standing.leave(request.sequence)
        self._release(request)
        self._end(request)
        self.cache.finish(request.sequence, min(request.kv, request.sequence.num_tokens))

    def abort(self, sequence: Sequence) -> None:
        request = self.requests[sequence]
        if sequence in self.running:
            self.chunked = None if request is self.chunked else self.chunked
            self._finish(request)
        else:
            self.queue.remove(sequence)
            self._end(request)

    def idle(self) -> None:
        """The engine's loop turns on while nothing is left to do."""
        if self.waiting or self.chunked is not None or self.flying:
            return
        self._merge()
        if self.rows.members:
            self.rows.filter(self._ends)
            self.rows.full = False
        if not self.rows.members:
            self.ratio.reset()

    # Many steps at once

    def horizon(self, step: Step) -> int:
        decodes = bool(self.flying) and not self.flying[-1].prefills and not self.flying[-1].chunks
        if self.overlap or not decodes or step.preempted or (self.waiting and not self.rows.full):
            return 0
        return self.memory.steps_within(self.rows.members)

    def extend(self, step: Step, steps: int) -> list[int]:
        used, now = [], step.gauges.kv_used
        for pages in self.memory.decode_ahead(self.rows.members, steps):
            now += pages
            used.append(now)
        self.launches.ticks += steps
        self.ratio.step(steps)
        return used

    def _gauges(self, running: int, logged: int | None = None, pending: int | None = None) -> Gauges:
        return Gauges(running, len(self.waiting), self.cache.used, logged, pending)


def _progress(request: Request) -> tuple[int, int]:
    """Who has the least of it is retracted first."""
    return request.output, -request.sequence.prompt_len
