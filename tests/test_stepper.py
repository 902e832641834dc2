"""One tick without a clock: the verbs in their order, what is refused, what is counted."""

from collections.abc import Callable, Collection, Mapping, Sequence as Ids
from typing import Any

import pytest

from arcsim.engine.errors import PolicyError
from arcsim.engine.stepper import Stepper
from arcsim.policies.base import Chunk, EmulatedSample, EngineFault, Forward, Gauges, Sequence, Step
from arcsim.policies.continuous import Continuous

from .serving import arrive, continuous, paged, request, sequence_of, tick


def test_a_request_goes_through_the_verbs() -> None:
    stepper = Stepper(continuous())
    a, b = arrive(stepper, request("a", 5, 2), request("b", 3, 1))
    assert (a.order, b.order) == (0, 1) and list(stepper.live) == [a, b]
    decision = stepper.schedule(0.0)
    committed = stepper.commit(decision.step, EmulatedSample(decision.step.sampling))
    assert committed.finished == [b] and committed.gauges == Gauges(1, 0, 2) and list(stepper.live) == [a]
    assert tick(stepper).totals.decode_seqs == 1
    assert not stepper.live
    stepper.idle()


def test_a_rejected_request_is_not_live() -> None:
    stepper = Stepper(continuous(blocks=2, size=4))
    reason = stepper.arrive(sequence_of(request("big", 30, 4)), 4)
    assert reason is not None and "needs 9 blocks of 4 tokens" in reason and not stepper.live


def test_a_rejection_while_scheduling_ends_it_too() -> None:
    stepper = Stepper(paged(3, 4, waiting_timeout=1, strict_mistralrs=True))
    arrive(stepper, request("big", 30, 4))
    steps = [tick(stepper) for _ in range(2)]
    assert [len(step.rejected) for step in steps] == [0, 1] and not stepper.live


def test_changes_are_told_even_when_the_batch_does_not_run() -> None:
    """X leaves the decode batch in a step that only prefills: the engine must know before X is prefilled again."""
    stepper = Stepper(continuous(3, 4, 2, 3, victim="first"))
    (x,) = arrive(stepper, request("X", 1, 9))
    tick(stepper)
    arrive(stepper, request("P", 8, 1))
    for _ in range(3):
        tick(stepper)
    decision = stepper.schedule(0.0)
    assert [sequence for sequence, _ in decision.step.preempted] == [x]
    assert decision.step.forwards[0].decode is None
    assert [change[1:] for change in decision.changes] == [(x, 3, False, False)]


class Meddling(Continuous):
    """Changes the step that is about to be returned."""

    change: Callable[[Step], Step]

    def schedule(self, now: float) -> Step:
        return type(self).change(super().schedule(now))


def meddling(change: Callable[[Step], Step]) -> Stepper:
    made = type("Meddling", (Meddling,), {"change": staticmethod(change)})
    inner = continuous(budget=64)
    policy: Continuous = made(inner.engine, inner.choice)
    return Stepper(policy)


def only(step: Step, *chunks: Chunk) -> Step:
    return Step(step.gauges, [Forward(chunks)])


def first(step: Step) -> Chunk:
    return step.forwards[0].chunks[0]


STRANGER = Sequence("stranger", [1, 2, 3], 5)

IMPOSSIBLE: Mapping[str, Callable[[Step], Step]] = {
    "it was never submitted": lambda step: only(step, Chunk.rest(STRANGER)),
    "tokens 0 to 6 of 5": lambda step: only(step, Chunk(first(step).sequence, 0, 6)),
    "tokens 0 to 0 of 5": lambda step: only(step, Chunk(first(step).sequence, 0, 0, samples=False)),
    "the chunk starts at 2, but 0 tokens are computed": lambda step: only(step, Chunk(first(step).sequence, 2, 3)),
    "a chunk to 3 of 5 tokens is said to sample: True": lambda step: only(step, Chunk(first(step).sequence, 0, 3)),
    "a chunk to 5 of 5 tokens is said to sample: False":
        lambda step: only(step, Chunk(first(step).sequence, 0, 5, samples=False)),
    "it is in the same forward pass twice": lambda step: only(step, first(step), first(step)),
}


@pytest.mark.parametrize("problem", IMPOSSIBLE)
def test_the_impossible_is_refused(problem: str) -> None:
    stepper = meddling(IMPOSSIBLE[problem])
    arrive(stepper, request("a", 5, 3))
    with pytest.raises(PolicyError, match="policy Meddling scheduled the impossible: <") as error:
        stepper.schedule(0.0)
    assert str(error.value).endswith(f": {problem}")


def test_a_row_of_the_standing_batch_cannot_be_a_chunk_as_well() -> None:
    def twice(step: Step) -> Step:
        batch = step.forwards[0].decode
        extra = [Chunk.rest(sequence) for sequence in batch or ()]
        return Step(step.gauges, [Forward([*step.forwards[0].chunks, *extra], batch)])

    stepper = meddling(twice)
    arrive(stepper, request("a", 5, 3))
    tick(stepper)
    with pytest.raises(PolicyError, match="twice"):
        stepper.schedule(0.0)


class Broken(Continuous):
    """Raises in one of its verbs."""

    verb = ""
    error: Exception = RuntimeError("no idea")

    def __getattribute__(self, name: str) -> Any:
        if name == type(self).verb:
            return self.fail
        return super().__getattribute__(name)

    def fail(self, *_: Any) -> None:
        raise self.error


def broken(verb: str, error: Exception) -> Stepper:
    inner = continuous()
    made = type("Broken", (Broken,), {"verb": verb, "error": error})
    policy: Continuous = made(inner.engine, inner.choice)
    return Stepper(policy)


CALLS: Mapping[str, Callable[[Stepper, Sequence], object]] = {
    "add": lambda stepper, _: arrive(stepper, request("b", 5, 3)),
    "schedule": lambda stepper, _: stepper.schedule(0.0),
    "commit": lambda stepper, _: stepper.commit(Step(Gauges(0, 0)), {}),
    "abort": lambda stepper, sequence: stepper.abort(sequence),
    "idle": lambda stepper, _: stepper.idle(),
    "extend": lambda stepper, _: stepper.extend(Step(Gauges(0, 0)), 3),
}


@pytest.mark.parametrize("verb", CALLS)
def test_what_a_policy_raises_names_the_verb_and_the_place(verb: str) -> None:
    stepper = broken(verb, RuntimeError("no idea"))
    sequence = Sequence("a", [1, 2], 3)
    message = rf"^policy Broken raised RuntimeError in {verb}\(\) at test_stepper.py:\d+: no idea$"
    with pytest.raises(PolicyError, match=message) as error:
        CALLS[verb](stepper, sequence)
    assert isinstance(error.value.__cause__, RuntimeError)


def test_an_error_without_words_is_said_to_have_none() -> None:
    with pytest.raises(PolicyError, match=r": no message$"):
        broken("idle", ValueError()).idle()


def test_the_fault_of_the_engine_itself_is_not_the_policys() -> None:
    with pytest.raises(EngineFault, match="panic"):
        broken("idle", EngineFault("panic")).idle()


class Lingering(Continuous):
    """Lets a finished sequence go one commit late, as some engines do."""

    def commit(self, step: Step, sampled: Mapping[Sequence, Ids[int]], stopped: Collection[Sequence]) -> Gauges:
        late = [sequence for sequence in stopped if sequence.id in self.seen]
        self.seen |= {sequence.id for sequence in stopped}
        return super().commit(step, sampled, late)

    seen: set[str] = set()


def test_tokens_past_the_end_are_wasted() -> None:
    inner = continuous()
    policy = Lingering(inner.engine, inner.choice)
    policy.seen = set()
    stepper = Stepper(policy)
    arrive(stepper, request("a", 5, 2, max_tokens=9))
    steps = []
    for _ in range(3):
        step = stepper.schedule(0.0).step
        steps.append(stepper.commit(step, EmulatedSample(step.sampling)))
    assert [[sequence.id for sequence in committed.finished] for committed in steps] == [[], ["a"], []]
    assert [committed.wasted for committed in steps] == [0, 0, 1]
    assert policy.pool.free == policy.pool.usable


def test_the_horizon_ends_with_the_nearest_output() -> None:
    stepper = Stepper(continuous())
    arrive(stepper, request("a", 5, 9), request("b", 5, 7))
    assert stepper.horizon(tick(stepper)) == 0  # a prefill
    step = stepper.schedule(0.0).step
    assert stepper.horizon(step) == 5  # b's tokens 3 to 7 after this step's second one
    stepper.extend(step, 5)
    committed = stepper.commit(step, EmulatedSample(step.sampling, 6), 6)
    assert [sequence.id for sequence in committed.finished] == ["b"]


def test_an_abort_frees_and_forgets() -> None:
    policy = continuous()
    stepper = Stepper(policy)
    running, prefilled, waiting = arrive(stepper, request("a", 5, 9), request("b", 9, 9), request("c", 5, 9))
    tick(stepper)
    for sequence in (waiting, prefilled, running):
        stepper.abort(sequence)
    assert not stepper.live and policy.pool.free == policy.pool.usable
    assert not policy.waiting and not policy.running and not policy.decoding.members
