"""One tick of the engine, without a clock: arrivals in, schedule, commit, idle."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence as Ids
from dataclasses import dataclass, field
from typing import Any

from ..policies.base import Chunk, DecodeBatch, EngineFault, Gauges, Policy, Sequence, Step
from ..policies.decode_batch import Change
from .ends import Ends
from .errors import PolicyError
from .flights import Flights


@dataclass(frozen=True, slots=True)
class Decision:
    """A step and who joined or left its decode batches since the last one."""

    step: Step
    changes: Ids[Change]


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit changed. `wasted`: tokens of this step that no output has: those of sequences that had ended, or
    that the engine threw away (`wasters` are whose), and the `surplus` of accepted drafts beyond an output's end."""

    gauges: Gauges
    finished: Ids[Sequence]
    wasted: int
    wasters: Collection[Sequence] = ()
    surplus: Mapping[Sequence, int] = field(default_factory=dict)


class Stepper:
    """Calls the policy's verbs in the engine's order and keeps who is still to be served.

    Steps are committed in the order in which they were scheduled; where the policy overlaps, the next one may be
    scheduled before. Every exception of the policy becomes a `PolicyError` that names the verb and the place, but for
    `EngineFault`. With a `clock` (seconds) the policy's work is timed.
    """

    def __init__(self, policy: Policy, clock: Callable[[], float] | None = None) -> None:
        self.policy = policy
        self._clock = clock
        self._seconds = 0.0
        self._ask: Callable[..., Any] = self._call if clock is None else self._timed_call
        self.ends = Ends()
        self.live: dict[Sequence, None] = {}
        self._known: set[Sequence] = set()
        self._batches: dict[DecodeBatch, None] = {}
        self._flights = Flights() if policy.overlap else None

    def arrive(self, sequence: Sequence, output: int) -> str | None:
        """Hand a request to the policy. Returns its reason if it rejects it."""
        sequence.order = len(self._known)
        self._known.add(sequence)
        reason: str | None = self._returned("add", self._ask("add", sequence), (str, type(None)))
        self.ends.expect(sequence, output)
        if reason is None:
            self.live[sequence] = None
        return reason

    def schedule(self, now: float) -> Decision:
        """Ask for the next step and check that it is possible. Raises `PolicyError` if it is not."""
        step: Step = self._returned("schedule", self._ask("schedule", now), (Step,))
        changes = list(self._follow(step))
        if self._flights is not None:
            self._flights.follow(changes)
            for sequence, _ in step.preempted:
                self._flights.preempt(sequence, delivers=self.policy.delivers_in_flight)
        self._check(step)
        for sequence, _ in step.rejected:
            self.live.pop(sequence, None)
        if self._flights is not None:
            self._flights.launch(step)
        return Decision(step, changes)

    def commit(
        self, step: Step, sampled: Mapping[Sequence, Ids[int]], count: int = 1, ended: Iterable[Sequence] = ()
    ) -> Committed:
        """Give the policy the tokens of the oldest step that is not committed, `count` for each sampling sequence.
        `ended`: whose token is its last, whatever length was expected."""
        self.ends.end(ended)
        stopped, lost = self._stopped(step, count)
        wasters = [*lost, *(sequence for sequence in stopped if sequence not in self.live)]
        surplus = self.ends.surplus(step)
        if surplus:
            sampled = {one: sampled[one][: len(sampled[one]) - surplus.get(one, 0)] for one in step.sampling()}
        first = next((row for row in step.sampling() if row in self.live and row not in wasters), None)
        before = 0 if first is None else first.generated
        gauges: Gauges = self._returned("commit", self._ask("commit", step, sampled, stopped), (Gauges,))
        if min(gauges.running, gauges.waiting, gauges.kv_used) < 0:
            raise PolicyError(f"policy {type(self.policy).__name__}: commit() returned {gauges}, a count below 0")
        if self._flights is None and first is not None and first.generated == before:
            name = type(self.policy).__name__
            raise PolicyError(f"policy {name}: commit() did not take the token of {first!r} (see Step.settle)")
        finished = [sequence for sequence in stopped if sequence in self.live]
        for sequence in finished:
            del self.live[sequence]
        wasted = sum(count + step.accepted.get(sequence, 0) for sequence in wasters) + sum(surplus.values())
        return Committed(gauges, finished, wasted, wasters, surplus)

    def _stopped(self, step: Step, count: int) -> tuple[list[Sequence], Ids[Sequence]]:
        """Whose output is complete with the tokens of a step, and whose tokens of it are thrown away."""
        if self._flights is None:
            return self.ends.stopped(step, count), ()
        for forward in step.forwards:
            if forward.decode is not None:
                self._flights.follow(forward.decode.journal)
        flight = self._flights.land()
        found = self.ends.stopped(step, count, tuple(flight.strays))
        return [sequence for sequence in found if sequence not in flight.lost], tuple(flight.lost)

    def abort(self, sequence: Sequence) -> None:
        self._ask("abort", sequence)
        del self.live[sequence]
        if self._flights is not None:
            self._flights.drop(sequence)

    def idle(self) -> None:
        self._ask("idle")

    def horizon(self, step: Step) -> int:
        """Further steps that may be decided at once, so that the nearest end falls on the last of them."""
        batches = [forward.decode for forward in step.forwards if forward.decode is not None]
        if not batches:
            return 0
        steps: int = self._returned("horizon", self._ask("horizon", step), (int,))
        return min(steps, *(self.ends.nearest(batch) - 1 for batch in batches))

    def extend(self, step: Step, steps: int) -> list[int]:
        used: list[int] = self._returned("extend", self._ask("extend", step, steps), (list,))
        if len(used) != steps:
            name = type(self.policy).__name__
            raise PolicyError(f"policy {name}: extend() returned {len(used)} numbers of KV units for {steps} steps")
        return used

    def carry_on(self, step: Step) -> Decision:
        """A step that `extend` decided is in flight."""
        if self._flights is not None:
            self._flights.launch(step)
        return Decision(step, ())

    def _follow(self, step: Step) -> Iterator[Change]:
        """Changes of every batch, in this step or not: who left one may run as a prefill before it runs again."""
        for forward in step.forwards:
            if forward.decode is not None:
                self._batches[forward.decode] = None
        for batch in self._batches:
            changes = batch.take_journal()
            self.ends.follow(batch, changes)
            yield from changes

    def take_seconds(self) -> float:
        """What the policy's work took since this was last asked (0 without a clock)."""
        taken, self._seconds = self._seconds, 0.0
        return taken

    def _timed_call(self, verb: str, *arguments: Any) -> Any:
        assert self._clock is not None
        start = self._clock()
        try:
            return self._call(verb, *arguments)
        finally:
            self._seconds += self._clock() - start

    def _call(self, verb: str, *arguments: Any) -> Any:
        try:
            return getattr(self.policy, verb)(*arguments)
        except EngineFault:
            raise
        except Exception as error:
            raise PolicyError.raised(self.policy, verb, error) from error

    def _returned(self, verb: str, value: Any, kinds: tuple[type, ...]) -> Any:
        if not isinstance(value, kinds):
            wanted = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
            name = type(self.policy).__name__
            raise PolicyError(f"policy {name}: {verb}() returned {value!r}, it must return {wanted}")
        return value

    def _check(self, step: Step) -> None:
        for forward in step.forwards:
            seen: set[Sequence] = set()
            for chunk in forward.chunks:
                problem = self._impossible(chunk)
                if chunk.sequence in seen or (forward.decode is not None and chunk.sequence in forward.decode):
                    problem = "it is in the same forward pass twice"
                if problem:
                    name = type(self.policy).__name__
                    raise PolicyError(f"policy {name} scheduled the impossible: {chunk.sequence!r}: {problem}")
                seen.add(chunk.sequence)

    def _impossible(self, chunk: Chunk) -> str | None:
        sequence = chunk.sequence
        if sequence not in self._known:
            return "it was never submitted"
        computed, tokens = sequence.computed, sequence.num_tokens
        if self._flights is not None:
            flying, sampled = self._flights.ahead(sequence)
            computed, tokens = computed + flying, tokens + sampled
        if chunk.length < 1 or chunk.end > tokens:
            return f"tokens {chunk.start} to {chunk.end} of {tokens}"
        if chunk.start != computed:
            return f"the chunk starts at {chunk.start}, but {computed} tokens are computed"
        if chunk.drafts and not (chunk.decode and chunk.samples and chunk.accepted <= chunk.drafts):
            return f"{chunk.drafts} drafts, {chunk.accepted} of them accepted, on a row that cannot verify them"
        if chunk.samples != (chunk.end == tokens):
            return f"a chunk to {chunk.end} of {tokens} tokens is said to sample: {chunk.samples}"
        return None
