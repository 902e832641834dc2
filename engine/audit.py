"""Checks the laws of scheduling after every step."""

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from ..policies.base import Policy, Sequence, Step
from ..policies.kv.ledger import Ledger
from .ends import Ends
from .errors import LawBroken
from .stepper import Committed

SCANNED_AT_ONCE = 8192
"""Units of a ledger up to which all of it is looked at after every step."""


class State(Enum):
    """Where a request stands, as the steps' facts say."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    REJECTED = "rejected"
    ABORTED = "aborted"


class Audit:
    """Keeps its own account of every request from the facts of the steps, and holds the policy to it.

    The laws: `time` never goes back; `kv`: free + held == usable, holders are counted right and every row has room for
    its tokens (a ledger of n units, n above `SCANNED_AT_ONCE`, is counted at every n/SCANNED_AT_ONCE-th step and at the
    end); `budget`: tokens of a step; `seats`: sequences of a step; `cached`: 0 <= hit < tokens of the sequence;
    `accounts`: every request is in exactly one state, and the policy's queues agree; `preemption` frees something;
    `rows`: a decode row carries one token, and drafts only where the policy speculates; `door`: what can never fit the
    ledger is not let in; `once`: a pass looks at each waiting request once at most; `output`: a finished request has
    exactly its output. A policy names those its engine breaks in `exempt`.
    Raises `LawBroken`.
    """

    def __init__(self, policy: Policy, ends: Ends) -> None:
        self._policy = policy
        self._ends = ends
        self._states: dict[Sequence, State] = {}
        self._live: dict[Sequence, None] = {}  # waiting or running
        self._held: dict[Sequence, int] = {}
        self._step = -1
        self._scanned = -1
        self._time = 0

    def arrive(self, sequence: Sequence, reason: str | None) -> None:
        self._states[sequence] = State.WAITING if reason is None else State.REJECTED
        if reason is None:
            self._live[sequence] = None
            self._check_door(sequence)

    def abort(self, sequence: Sequence) -> None:
        self._states[sequence] = State.ABORTED
        self._live.pop(sequence, None)

    def decide(self, step: Step, now: int) -> None:
        """A step was scheduled at `now` nanoseconds and is about to run."""
        self._step += 1
        self._law("time", now >= self._time, f"{now} ns after {self._time} ns")
        self._time = now
        self._check_size(step)
        self._check_rows(step)
        if len(set(step.examined)) < len(step.examined):
            self._law("once", False, f"the pass looked more than once at some of {list(step.examined)}")
        self._move(step)

    def commit(self, committed: Committed) -> None:
        for sequence in committed.finished:
            self._states[sequence] = State.FINISHED
            self._live.pop(sequence, None)
            wanted = self._ends.length(sequence)
            self._law("output", sequence.generated == wanted, f"{sequence!r} finished, its output has {wanted} tokens")
        self._check_accounts()
        self._check_ledger()

    def _check_door(self, sequence: Sequence) -> None:
        capacity = None if self._policy.ledger is None else self._policy.ledger.capacity
        most = sequence.prompt_len + max(sequence.max_tokens, 1) - 1
        if capacity is not None and most > capacity:
            self._law("door", False, f"{sequence!r} was let in, {most} tokens can never fit {capacity}")

    def _check_size(self, step: Step) -> None:
        engine, totals = self._policy.engine, step.totals
        tokens, budget = totals.prefill_tokens + totals.decode_tokens, engine.max_num_batched_tokens
        self._law("budget", budget is None or tokens <= budget, f"{tokens} tokens in a step, the budget is {budget}")
        seats = engine.max_num_seqs
        self._law("seats", seats is None or totals.width <= seats, f"{totals.width} sequences, max_num_seqs is {seats}")

    def _check_rows(self, step: Step) -> None:
        ledger = self._policy.ledger
        for chunk in (chunk for forward in step.forwards for chunk in forward.all_chunks()):
            sequence = chunk.sequence
            if not 0 <= chunk.cached < sequence.num_tokens:
                self._law("cached", False, f"{sequence!r} hit {chunk.cached} tokens")
            end = chunk.end + chunk.drafts
            if ledger is not None and end > ledger.room(sequence):
                self._law("kv", False, f"{sequence!r} computes to token {end}, it has room for {ledger.room(sequence)}")
            if chunk.decode and (chunk.length > 1 or (chunk.drafts and not self._policy.speculates)):
                row = f"{chunk.length} tokens and {chunk.drafts} drafts"
                self._law("rows", False, f"{sequence!r} decodes {row} in a row")

    def _move(self, step: Step) -> None:
        for sequence, _ in step.preempted:
            ran = self._states[sequence] is State.RUNNING and self._policy.ledger is not None
            self._law("preemption", not ran or self._held[sequence] > 0, f"{sequence!r} held nothing to free")
        moves = Counter([*step.admitted, *step.resumed])
        moves.subtract(sequence for sequence, _ in step.preempted)
        for sequence, net in moves.items():  # both ways within a step: admitted and preempted, or the other way round
            running = net + (self._states[sequence] is State.RUNNING)
            self._law("accounts", running in (0, 1), f"{sequence!r} was admitted or preempted twice in a row")
            self._states[sequence] = State.RUNNING if running > 0 else State.WAITING
            self._held[sequence] = len(sequence.block_table)  # it may be preempted before this step is committed
        for sequence, _ in step.rejected:
            self._states[sequence] = State.REJECTED
            self._live.pop(sequence, None)

    def _check_accounts(self) -> None:
        """At a cost that grows with the requests being served, not with those ever submitted."""
        waiting, running = Counter(iter(self._policy.waiting)), Counter(iter(self._policy.running))
        for sequence in self._live:
            found = ("waiting",) * waiting.pop(sequence, 0) + ("running",) * running.pop(sequence, 0)
            if found != (self._states[sequence].value,):
                self._misplaced(sequence, " and ".join(found) or "in no queue")
        for sequence in waiting.keys() & self._states.keys():
            self._misplaced(sequence, "waiting")
        strangers = [sequence for sequence in (*waiting, *running) if sequence not in self._states]
        self._law("accounts", not strangers, f"never submitted, but queued: {strangers}")

    def _misplaced(self, sequence: Sequence, where: str) -> None:
        state = self._states[sequence].value
        self._law("accounts", False, f"{sequence!r} is {state} by the steps' facts, but {where}")

    def _check_ledger(self) -> None:
        ledger, queued = self._policy.ledger, [*self._policy.waiting, *self._policy.running]
        if ledger is not None:
            if (self._step - self._scanned) * SCANNED_AT_ONCE >= ledger.usable:
                self._scan(ledger, queued)
            self._held = {sequence: ledger.room(sequence) for sequence in queued}

    def close(self) -> None:
        """Everything is served, and what was not counted since the last scan of the ledger is."""
        if self._policy.ledger is not None:
            self._scan(self._policy.ledger, [*self._policy.waiting, *self._policy.running])

    def _scan(self, ledger: Ledger, queued: list[Sequence]) -> None:
        self._scanned = self._step
        wrong = ledger.violations(queued)
        self._law("kv", not wrong, "; ".join(wrong))

    def _law(self, name: str, holds: object, otherwise: str) -> None:
        if not holds and name not in self._policy.exempt:
            raise LawBroken(f"law {name} broken by {type(self._policy).__name__} in step {self._step}: {otherwise}")


def states(audit: Audit) -> Iterable[State]:
    """The state of every request ever submitted."""
    return audit._states.values()
