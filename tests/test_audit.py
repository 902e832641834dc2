"""Each law of the audit can be broken: a policy with one fault each, and the law that finds it."""

from collections.abc import Callable, Collection, Mapping, Sequence as Ids
from typing import Any, ClassVar

import pytest

from arcsim.engine import audit as audit_module
from arcsim.engine.audit import Audit, State, states
from arcsim.engine.ends import Ends
from arcsim.engine.errors import LawBroken
from arcsim.engine.stepper import Committed
from arcsim.policies.base import Chunk, Forward, Gauges, Policy, Sequence, Step
from arcsim.policies.continuous import Continuous
from arcsim.policies.mistralrs_paged import MistralrsPaged

from .serving import Served, continuous, paged, request, serve

Sampled = Mapping[Sequence, Ids[int]]


def like(policy: type[Continuous], **engine: Any) -> Continuous:
    inner = continuous(**engine)
    return policy(inner.engine, inner.choice)


def run(policy: Policy, *, audit: bool = True) -> Served:
    text = ("common", 8)
    requests = [request("a", (text, ("a", 1)), 1), request("b", (text, ("b", 1)), 4, 1.0),
                request("c", (text, ("c", 1)), 2, 1.0)]
    return serve(policy, requests, audit=audit)


class Loses(Continuous):
    """One that waits is forgotten."""

    def schedule(self, now: float) -> Step:
        if len(self.waiting) > 1:
            self.waiting.remove(list(self.waiting)[-1])
        return super().schedule(now)


class Keeps(Continuous):
    """Those that run stay in the queue as well."""

    def commit(self, step: Step, sampled: Sampled, stopped: Collection[Sequence]) -> Gauges:
        gauges = super().commit(step, sampled, stopped)
        for sequence in self.running:
            self.waiting.add(sequence)
        return gauges


class Revives(Continuous):
    """One that has finished queues again."""

    def commit(self, step: Step, sampled: Sampled, stopped: Collection[Sequence]) -> Gauges:
        gauges = super().commit(step, sampled, stopped)
        for sequence in stopped:
            self.waiting.add(sequence)
        return gauges


class Invents(Continuous):
    """Somebody queues who never came."""

    def commit(self, step: Step, sampled: Sampled, stopped: Collection[Sequence]) -> Gauges:
        self.waiting.add(Sequence("ghost", [1, 2], 3))
        return super().commit(step, sampled, stopped)


class SaysTwice(Continuous):
    """The step names an admission twice."""

    def schedule(self, now: float) -> Step:
        step = super().schedule(now)
        return Step(step.gauges, step.forwards, [*step.admitted, *step.admitted])


class Leaks(Continuous):
    """What finishes keeps its blocks."""

    def commit(self, step: Step, sampled: Sampled, stopped: Collection[Sequence]) -> Gauges:
        tables = {sequence: sequence.block_table for sequence in stopped}
        gauges = super().commit(step, sampled, stopped)
        for table in tables.values():
            self.pool.touch(table)
        return gauges


class FreesTwice(Continuous):
    """What finishes gives up its blocks twice, those that others share too."""

    def commit(self, step: Step, sampled: Sampled, stopped: Collection[Sequence]) -> Gauges:
        tables = [block for sequence in stopped for block in sequence.block_table]
        gauges = super().commit(step, sampled, stopped)
        self.pool.release([block for block in tables if block not in self.pool._free])
        return gauges


class GivesTooLittle(Continuous):
    """The last block of a prompt is taken back before it runs."""

    def schedule(self, now: float) -> Step:
        step = super().schedule(now)
        for sequence in step.admitted:
            self.pool.release([sequence.block_table.pop()])
        return step


class Overruns(Continuous):
    def schedule(self, now: float) -> Step:
        self.budget = 99
        return super().schedule(now)


class Crowds(Continuous):
    def schedule(self, now: float) -> Step:
        self.seats = 99
        return super().schedule(now)


class HitsAll(Continuous):
    """A hit of the whole sequence leaves nothing to compute."""

    def schedule(self, now: float) -> Step:
        step = super().schedule(now)
        forwards = [Forward([self.hit(chunk) for chunk in f.chunks], f.decode) for f in step.forwards]
        return Step(step.gauges, forwards, step.admitted)

    def hit(self, chunk: Chunk) -> Chunk:
        return Chunk(chunk.sequence, chunk.start, chunk.length, chunk.sequence.num_tokens)


class PreemptsForNothing(Continuous):
    """The victim had been freed before; it goes back to the queue and nothing is gained."""

    def commit(self, step: Step, sampled: Sampled, stopped: Collection[Sequence]) -> Gauges:
        gauges = super().commit(step, sampled, stopped)
        for sequence in self.running:
            self.blocks.free(sequence)
        return gauges

    def schedule(self, now: float) -> Step:
        if not self.running:
            return super().schedule(now)
        victim = next(iter(self.running))
        self._let_go(victim)
        self.waiting.put_back(victim)
        return Step(self._gauges(), preempted=[(victim, "a whim")])


class TakesTheLastTwice(MistralrsPaged):
    """The last token of an output is taken twice. (One that is not taken at all is no matter for the audit: the
    stepper refuses it.)"""

    def commit(self, step: Step, sampled: Sampled, stopped: Collection[Sequence]) -> Gauges:
        return super().commit(step, dict(sampled) | {sequence: [7, 7] for sequence in stopped}, stopped)


def takes_twice() -> TakesTheLastTwice:
    inner = paged()
    return TakesTheLastTwice(inner.engine, inner.choice)


BROKEN: Mapping[str, tuple[Callable[[], Policy], str]] = {
    "accounts: a request is lost": (lambda: like(Loses), "<.: 9.* is waiting by the steps' facts, but in no queue"),
    "accounts: in two queues": (lambda: like(Keeps), "is running by the steps' facts, but waiting and running"),
    "accounts: after its end": (lambda: like(Revives), "<a: .* is finished by the steps' facts, but waiting"),
    "accounts: a stranger": (lambda: like(Invents), "never submitted, but queued: .<ghost: 2"),
    "accounts: admitted twice": (lambda: like(SaysTwice), "<a: .* was admitted or preempted twice in a row"),
    "kv: a leak": (lambda: like(Leaks), "block 0 is held 1 times, but 0 sequences list it"),
    "kv: freed twice": (lambda: like(FreesTwice), "block 0 is held 0 times, but 1 sequences list it"),
    "kv: no room": (lambda: like(GivesTooLittle), "<a: .* computes to token 9, it has room for 8"),
    "budget": (lambda: like(Overruns, seats=2, budget=4), "9 tokens in a step, the budget is 4"),
    "seats": (lambda: like(Crowds, seats=1), "2 sequences, max_num_seqs is 1"),
    "cached": (lambda: like(HitsAll), "<a: .* hit 9 tokens"),
    "preemption": (lambda: like(PreemptsForNothing, prefix_cache=False), "<b: .* held nothing to free"),
    "output": (takes_twice, r"<a: 9\+2 .* finished, its output has 1 tokens"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_law_is_found_and_named(name: str) -> None:
    law, (build, message) = name.split(":")[0], BROKEN[name]
    policy = build()
    pattern = rf"^law {law} broken by {type(policy).__name__} in step \d+: .*{message}"
    with pytest.raises(LawBroken, match=pattern):
        run(policy)


@pytest.mark.parametrize("name", [name for name in BROKEN if name.split(":")[0] in ("budget", "seats", "cached")])
def test_a_policy_may_own_up_to_a_law_its_engine_breaks(name: str) -> None:
    law, (build, _) = name.split(":")[0], BROKEN[name]
    policy = build()

    class Exempt(type(policy)):  # type: ignore[misc]
        exempt: ClassVar[frozenset[str]] = frozenset({law})

    assert run(Exempt(policy.engine, policy.options)).outcome == "completed"


@pytest.mark.parametrize(("once", "step"), [(8, 0), (1, 4)])
def test_a_leak_in_a_pool_too_large_to_count_at_every_step_is_found_all_the_same(
    once: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end, if no scan came before. (Tried: a close that does not look.)"""
    policy = like(Leaks, blocks=8)
    monkeypatch.setattr(audit_module, "SCANNED_AT_ONCE", once)
    with pytest.raises(LawBroken, match=rf"law kv broken by Leaks in step {step}: block"):
        run(policy)


def test_without_an_audit_nothing_is_checked() -> None:
    assert run(like(Overruns, seats=2, budget=4), audit=False).outcome == "completed"


def test_time_never_goes_back() -> None:
    audit = Audit(continuous(), Ends())
    step = Step(Gauges(0, 0))
    for now in (5, 5, 6):
        audit.decide(step, now)
    with pytest.raises(LawBroken, match="law time broken by Continuous in step 3: 5 ns after 6 ns"):
        audit.decide(step, 5)


def test_a_finished_output_is_exact() -> None:
    """One token too many is as wrong as one too few."""
    ends, policy = Ends(), continuous()
    audit, sequence = Audit(policy, ends), Sequence("a", [1], 9)
    ends.expect(sequence, 2)
    audit.arrive(sequence, None)
    sequence.append([7, 8, 9])
    with pytest.raises(LawBroken, match=r"law output .*<a: 1\+3 tokens, 0 computed> finished, its output has 2 tokens"):
        audit.commit(Committed(Gauges(0, 0), [sequence], 0))


def test_every_request_has_one_state() -> None:
    policy = continuous(4, 4)
    audit, ends = Audit(policy, Ends()), Ends()
    a, b = Sequence("a", range(5), 2), Sequence("b", range(50), 2)
    for sequence in (a, b):
        ends.expect(sequence, 2)
        audit.arrive(sequence, policy.add(sequence))
    assert list(states(audit)) == [State.WAITING, State.REJECTED]
    audit.decide(policy.schedule(0.0), 0)
    assert list(states(audit)) == [State.RUNNING, State.REJECTED]
    policy.abort(a)
    audit.abort(a)
    assert list(states(audit)) == [State.ABORTED, State.REJECTED]
    audit.commit(Committed(Gauges(0, 0), [], 0))


def test_a_preemption_and_a_return_within_a_step_are_no_fault() -> None:
    """Both orders happen: a prompt is admitted and loses its bucket; a victim makes room and comes back at once."""
    policy = continuous()
    audit, a = Audit(policy, Ends()), Sequence("a", range(5), 2)
    policy.add(a)
    audit.arrive(a, None)
    audit.decide(Step(Gauges(0, 1), admitted=[a], preempted=[(a, "")]), 0)
    assert list(states(audit)) == [State.WAITING]
    audit.decide(Step(Gauges(1, 0), resumed=[a]), 1)
    policy.schedule(0.0)
    audit.commit(Committed(Gauges(1, 0), [], 0))
    audit.decide(Step(Gauges(1, 0), resumed=[a], preempted=[(a, "")]), 2)
    assert list(states(audit)) == [State.RUNNING]
    with pytest.raises(LawBroken, match="law accounts .* admitted or preempted twice in a row"):
        audit.decide(Step(Gauges(1, 0), resumed=[a]), 3)
