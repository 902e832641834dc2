"""One tick of the engine, without a clock: arrivals in, schedule, commit, idle."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence as Ids
from dataclasses import dataclass
from typing import Any

from ..policies.base import Chunk, DecodeBatch, EngineFault, Gauges, Policy, Sequence, Step
from .ends import Change, Ends
from .errors import PolicyError


@dataclass(frozen=True, slots=True)
class Decision:
    """A step and who joined or left its decode batches since the last one."""

    step: Step
    changes: Ids[Change]


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit changed. `wasted`: tokens of this step beyond the end of an output."""

    gauges: Gauges
    finished: Ids[Sequence]
    wasted: int


class Stepper:
    """Calls the policy's verbs in the engine's order and keeps who is still to be served.

    Every exception of the policy becomes a `PolicyError` that names the verb and the place, but for `EngineFault`.
    With a `clock` (seconds) the policy's work is timed.
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

    def arrive(self, sequence: Sequence, output: int) -> str | None:
        """Hand a request to the policy. Returns its reason if it rejects it."""
        sequence.order = len(self._known)
        self._known.add(sequence)
        self.ends.expect(sequence, output)
        reason: str | None = self._returned("add", self._ask("add", sequence), (str, type(None)))
        if reason is None:
            self.live[sequence] = None
        return reason

    def schedule(self, now: float) -> Decision:
        """Ask for the next step and check that it is possible. Raises `PolicyError` if it is not."""
        step: Step = self._returned("schedule", self._ask("schedule", now), (Step,))
        self._check(step)
        for sequence, _ in step.rejected:
            self.live.pop(sequence, None)
        return Decision(step, list(self._follow(step)))

    def commit(
        self, step: Step, sampled: Mapping[Sequence, Ids[int]], count: int = 1, ended: Iterable[Sequence] = ()
    ) -> Committed:
        """Give the policy the tokens of a step, `count` for each sampling sequence. `ended`: whose token is its last,
        whatever length was expected."""
        self.ends.end(ended)
        stopped = self.ends.stopped(step, count)
        wasted = sum(count for sequence in stopped if sequence not in self.live)
        first = next((sequence for sequence in step.sampling() if sequence in self.live), None)
        before = 0 if first is None else first.generated
        gauges: Gauges = self._returned("commit", self._ask("commit", step, sampled, stopped), (Gauges,))
        if first is not None and first.generated == before:
            name = type(self.policy).__name__
            raise PolicyError(f"policy {name}: commit() did not take the token of {first!r} (see Step.settle)")
        finished = [sequence for sequence in stopped if sequence in self.live]
        for sequence in finished:
            del self.live[sequence]
        return Committed(gauges, finished, wasted)

    def abort(self, sequence: Sequence) -> None:
        self._ask("abort", sequence)
        del self.live[sequence]

    def idle(self) -> None:
        self._ask("idle")

    def horizon(self, step: Step) -> int:
        """Further steps that may be decided at once, so that the nearest end falls on the last of them."""
        batches = [forward.decode for forward in step.forwards if forward.decode is not None]
        if not batches:
            return 0
        steps: int = self._ask("horizon", step)
        return min(steps, *(self.ends.nearest(batch) - 1 for batch in batches))

    def extend(self, step: Step, steps: int) -> list[int]:
        used: list[int] = self._ask("extend", step, steps)
        return used

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
        if chunk.length < 1 or chunk.end > sequence.num_tokens:
            return f"tokens {chunk.start} to {chunk.end} of {sequence.num_tokens}"
        if chunk.start != sequence.computed:
            return f"the chunk starts at {chunk.start}, but {sequence.computed} tokens are computed"
        if chunk.samples != (chunk.end == sequence.num_tokens):
            return f"a chunk to {chunk.end} of {sequence.num_tokens} tokens is said to sample: {chunk.samples}"
        return None
