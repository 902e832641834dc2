"""The loop on its clock: who is in time for a step, idle gaps, closed loops, and runs that cannot go on."""

from collections.abc import Collection, Mapping, Sequence as Ids
from typing import Any

import pytest

from arcsim.engine import loop as loop_module
from arcsim.engine.backend import StepResult
from arcsim.engine.errors import PolicyError
from arcsim.engine.loop import Loop
from arcsim.policies.base import Chunk, EngineFault, Forward, Gauges, Sequence, Step
from arcsim.policies.continuous import Continuous
from arcsim.workloads.arrival import Arrival

from .serving import Given, Watching, continuous, paged, request, serve


def test_who_arrives_at_the_instant_of_a_step_is_in_time_for_it() -> None:
    """Steps of one second: b arrives as the first ends, c a nanosecond later. (Mutation tried: arrivals of the
    instant are let in after the step is scheduled.)"""
    served = serve(continuous(), [request("a", 4, 5), request("b", 4, 2, 1.0), request("c", 4, 2, 1.000000001)])
    assert [seen.admitted for seen in served.seen] == [("a",), ("b",), ("c",), (), ()]
    assert served.ints("arrived") == [1, 1, 1, 0, 0]
    assert served.requests["c"]["first_scheduled"] == 2.0


def test_ties_go_in_the_order_of_the_workload() -> None:
    served = serve(continuous(seats=1), [request(id, 4, 1, 2.0) for id in ("b", "c", "a")])
    assert [seen.admitted for seen in served.seen] == [("b",), ("c",), ("a",)]


def test_idle_gaps_pass_on_the_clock_and_take_no_step() -> None:
    policy = continuous()
    served = serve(policy, [request("a", 4, 1, 0.5), request("b", 4, 1, 1000.0)])
    assert served.run.column("t_start").tolist() == [0.5, 1000.0] and served.loop.now == 1001.0
    assert served.outcome == "completed" and served.loop.report == ""


def test_nothing_to_serve_is_a_completed_run() -> None:
    served = serve(continuous(), [])
    assert (served.outcome, len(served.run.steps), served.loop.now) == ("completed", 0, 0.0)


def test_the_policy_is_told_when_nothing_is_left() -> None:
    calls: list[int] = []

    class Told(Continuous):
        def idle(self) -> None:
            calls.append(len(self.running) + len(self.waiting))

    inner = continuous()
    serve(Told(inner.engine, inner.choice), [request("a", 4, 3), request("b", 4, 1, 9.0)])
    assert calls == [0, 0]


def test_requests_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match=r"workload: b arrives at 1.0 s, before the request ahead of it"):
        serve(continuous(), [request("a", 4, 3, 2.0), request("b", 4, 1, 1.0)])


def closed(count: int, prompt: int = 4, think: float = 0.0) -> tuple[list[str], Any]:
    """A client that sends its next request `think` seconds after each end."""
    ended: list[str] = []

    def answer(id: str, now: float) -> Arrival | None:
        ended.append(f"{id}@{now:g}")
        return request(f"n{len(ended)}", prompt, 2, now + think) if len(ended) < count else None

    return ended, answer


def test_a_closed_loop_sends_the_next_request_at_each_end() -> None:
    ended, answer = closed(3)
    served = serve(continuous(), [request("a", 4, 2)], answer=answer)
    assert ended == ["a@2", "n1@4", "n2@6"] and served.run.column("t_start").tolist() == [0, 1, 2, 3, 4, 5]


def test_a_thinking_client_leaves_the_engine_idle() -> None:
    ended, answer = closed(3, think=2.5)
    served = serve(continuous(), [request("a", 4, 2)], answer=answer)
    assert ended == ["a@2", "n1@6.5", "n2@11"] and served.outcome == "completed"


def test_a_closed_loop_may_send_before_what_is_known_to_come() -> None:
    """The arrivals' process sleeps until 50 s when the next request of the loop is due at 3.5 s."""
    ended, answer = closed(2, think=1.5)
    served = serve(continuous(), [request("a", 4, 2), request("late", 4, 2, 50.0)], answer=answer)
    assert served.requests["n1"]["first_scheduled"] == 3.5 and ended == ["a@2", "n1@5.5", "late@52"]


def test_a_rejected_request_is_an_end_too() -> None:
    """Every request of the loop is beyond the pool: each brings the next at the same instant, and time stands."""
    ended, answer = closed(4, prompt=999)
    served = serve(continuous(20), [request("a", 999, 2, 1.0)], answer=answer)
    assert ended == ["a@1", "n1@1", "n2@1", "n3@1"] and len(served.run.steps) == 0
    assert {row["status"] for row in served.requests.values()} == {"rejected"}


def test_the_next_request_of_a_rejected_one_is_in_time_for_the_step() -> None:
    ended, answer = closed(2, prompt=4)
    served = serve(continuous(20), [request("a", 999, 2), request("b", 4, 2)], answer=answer)
    assert served.seen[0].admitted == ("b", "n1") and ended[0] == "a@0"


def test_progress_is_told_at_every_end() -> None:
    told: list[tuple[int, float]] = []
    ends = [request("a", 4, 2), request("big", 999, 2), request("b", 4, 3)]
    loop = Loop(continuous(20), Given(ends), Watching(), progress=lambda ended, now: told.append((ended, now)))
    loop.run()
    assert told == [(1, 0.0), (2, 2.0), (3, 3.0)]


class Idle(Continuous):
    """Never schedules anything."""

    def schedule(self, now: float) -> Step:
        return Step(self._gauges())


def idle(**options: Any) -> Idle:
    inner = continuous(**options)
    return Idle(inner.engine, inner.choice)


def test_a_policy_that_never_schedules_is_stalled_and_who_waits_is_named() -> None:
    served = serve(idle(blocks=9), [request("a", 5, 3), *(request(f"r{i}", 1, 3) for i in range(9))])
    assert served.outcome == "stalled" and len(served.run.steps) == 12 == Idle.stall_after
    assert served.loop.now == 12.0  # an empty step takes its time
    report = served.loop.report.splitlines()
    assert report[:4] == [
        "stalled: 12 empty steps in a row, and nothing more arrives", "  KV: 9 of 9 blocks free", "  0 running",
        "  10 waiting:",
    ]
    assert report[4] == "    a: 5 tokens, 0 computed, holds 0 blocks, needs 2 more blocks"
    assert report[-1] == "    and 2 more" and len(report) == 13
    row = served.requests["a"]
    assert row["status"] == "unfinished" and row["reason"] == report[4].strip()


def test_a_stall_waits_for_what_is_still_to_arrive() -> None:
    """Nothing is scheduled before the second request; the clock jumps to it instead of stepping on."""
    class Late(Continuous):
        def schedule(self, now: float) -> Step:
            return super().schedule(now) if len(self.waiting) + len(self.running) > 1 or now > 100 else Step(
                self._gauges())

    inner = continuous()
    served = serve(Late(inner.engine, inner.choice), [request("a", 4, 2), request("b", 4, 2, 100.0)])
    assert served.outcome == "completed" and served.requests["a"]["first_scheduled"] == 100.0
    assert served.ints("forward_width") == [0] * 12 + [2, 2]


def test_who_arrives_in_the_last_empty_step_is_let_in() -> None:
    """It came while the twelfth empty step ran: that is no stall. (It was one, once: the inbox was not looked at.)"""
    class Pair(Continuous):
        def schedule(self, now: float) -> Step:
            together = len(self.waiting) + len(self.running) > 1
            return super().schedule(now) if together or self.running else Step(self._gauges())

    inner = continuous()
    served = serve(Pair(inner.engine, inner.choice), [request("a", 4, 2), request("b", 4, 2, 11.5)])
    assert served.outcome == "completed" and served.requests["b"]["first_scheduled"] == 12.0


class Thrashing(Continuous):
    """Prefills the first half of a prompt, throws it away, and again."""

    def schedule(self, now: float) -> Step:
        if self.running:
            (sequence,) = self.running
            self._let_go(sequence)
            sequence.drop_kv()
            self.waiting.put_back(sequence)
            return Step(self._gauges(), preempted=[(sequence, "a whim")])
        step = super().schedule(now)
        chunks = [Chunk(chunk.sequence, 0, 2, samples=False) for chunk in step.forwards[0].chunks]
        return Step(step.gauges, [Forward(chunks)], step.admitted, step.resumed)


def test_steps_that_compute_nothing_new_are_thrashing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "THRASHING", 40)
    inner = continuous(prefix_cache=False)
    served = serve(Thrashing(inner.engine, inner.choice), [request("a", 4, 2)])
    assert served.outcome == "stalled" and len(served.run.steps) == 41  # the first one computed something
    assert served.loop.report.startswith("stalled: 40 steps in a row computed nothing new")
    assert served.total("recomputed_tokens") == 2 * 20
    assert served.requests["a"]["preemptions"] == 20


def test_work_is_never_taken_for_thrashing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it prefills in chunks or decodes, each of these steps does something for the first time."""
    monkeypatch.setattr(loop_module, "THRASHING", 2)
    for policy in (continuous(seats=1, budget=1), paged(10, caching="none")):
        assert serve(policy, [request("a", 12, 9), request("b", 9, 9), request("c", 5, 9)]).outcome == "completed"


class Pulling(Watching):
    """Somebody presses Ctrl-C in the n-th step."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def collect(self) -> StepResult:
        if len(self.seen) > self.after:
            raise KeyboardInterrupt
        return super().collect()


def test_an_interrupted_run_keeps_its_trace() -> None:
    served = serve(continuous(), [request("a", 4, 2), request("b", 4, 9), request("later", 4, 9, 99.0)], Pulling(4))
    assert served.outcome == "interrupted" and served.loop.report == "interrupted at 4.000 s of the run's clock"
    assert len(served.run.steps) == 4 and served.total("sampled_tokens") == 2 + 4
    assert {id: (row["status"], row["token_times"]) for id, row in served.requests.items()} == {
        "a": ("finished", [1.0, 2.0]), "b": ("unfinished", [1.0, 2.0, 3.0, 4.0]),
    }


class Panicking(Continuous):
    def schedule(self, now: float) -> Step:
        if now >= 2:
            raise EngineFault("must have allocated blocks")
        return super().schedule(now)


def test_a_fault_of_the_engine_ends_the_run_and_keeps_its_trace() -> None:
    inner = continuous()
    served = serve(Panicking(inner.engine, inner.choice), [request("a", 4, 9)])
    assert (served.outcome, served.loop.report) == ("engine fault", "must have allocated blocks")
    assert len(served.run.steps) == 2 and served.requests["a"]["output_tokens"] == 2


class Raising(Continuous):
    def commit(self, step: Step, sampled: Mapping[Sequence, Ids[int]], stopped: Collection[Sequence]) -> Gauges:
        raise KeyError("gone")


def test_a_policy_that_raises_ends_the_run_with_verb_and_place() -> None:
    inner = continuous()
    with pytest.raises(PolicyError, match=r"policy Raising raised KeyError in commit\(\) at test_loop.py:\d+: 'gone'"):
        serve(Raising(inner.engine, inner.choice), [request("a", 4, 9)])


def test_a_backend_may_measure_anything() -> None:
    """Seconds are taken as they come, and a step of no time moves no clock."""
    class Measured(Watching):
        def collect(self) -> StepResult:
            result = super().collect()
            return StepResult([0.25, 0.0, 1e-9, 3.0][len(self.seen) - 1], result.sampled, 0.125, 0.5)

    served = serve(continuous(), [request("a", 4, 4)], Measured())
    assert served.run.step_seconds().tolist() == pytest.approx([0.25, 0.0, 1e-9, 3.0])
    assert served.run.column("host_seconds").tolist() == [0.125] * 4
    assert served.requests["a"]["token_times"] == [0.25, 0.25, 0.250000001, 3.250000001]


def test_counts_of_the_steps_add_up_to_those_of_the_requests() -> None:
    served = serve(paged(10, caching="none"), [request("a", 9, 8), request("b", 5, 8, 1.5), request("big", 99, 1, 2.5)])
    rows = list(served.requests.values())
    assert served.total("arrived") == 3 and served.total("rejected") == 1 and served.total("finished") == 2
    assert served.total("admitted") == 2 and served.total("preempted") == sum(row["preemptions"] for row in rows)
    assert served.total("sampled_tokens") == sum(row["output_tokens"] for row in rows) == 16
    assert served.total("recomputed_tokens") == sum(row["recomputed_tokens"] for row in rows)
