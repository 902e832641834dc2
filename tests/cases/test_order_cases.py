"""Reported faults of the order in which requests are let in."""

from statistics import median
from typing import Any

import pytest

from arcsim.policies.base import Sequence
from arcsim.policies.continuous import Continuous
from arcsim.policies.waiting_queues import ByPriority

from .play import NEVER, Request, alike, continuous, play


def with_lights() -> list[Request]:
    """A request of 80 blocks behind one of 60 to 67, and 200 small ones after it, one a step; 100 blocks in all."""
    lights = [Request(f"l{index}", 2 + index, 240, 30) for index in range(200)]
    return [Request("r0", 0, 960, 100), Request("heavy", 1, 1280, 8), *lights]


@pytest.mark.parametrize(
    ("options", "starts"),
    [({}, 100), ({"skip_blocked_head": True}, 1078), ({"skip_blocked_head": True, "skip_passes": 50}, 100)],
)
def test_03_passing_a_blocked_head(options: dict[str, Any], starts: int) -> None:
    """Small requests that pass a large one serve more of them, but the large one starts at 1,078 instead of 100. With a
    bound on how often it is passed over it starts when it would have."""
    outcome = play(continuous(100, seats=64, **options), with_lights())
    assert outcome.told["heavy"].admitted == starts
    assert outcome.finished == 202


def test_03_those_behind_an_impatient_head_wait() -> None:
    """The bound counts the passes of the request that was blocked first, and only that one."""
    lights = [Request("l", 8, 64, 8), Request("m", 20, 64, 8)]
    requests = [Request("r0", 0, 960, 100), Request("heavy", 1, 1280, 8), *lights]
    outcome = play(continuous(100, skip_blocked_head=True, skip_passes=10), requests)
    assert [outcome.told[id].admitted for id in ("l", "m", "heavy")] == [8, 100, 100]


def test_04_admitted_by_the_first_chunk() -> None:
    """A long prompt is let in by its first chunk, preempted just before its end, let in again, and so on. The number
    of steps does not show it; the recomputed tokens do. Right: the whole prompt must fit.

    The case tells `late`'s share of the preemptions by the chunk's rule: 41 of 62."""
    requests = [*alike(4, 0, 1600, 400), Request("late", 60, 1600, 10)]
    chunk = play(continuous(448, seats=8, budget=160, admission="chunk_only"), requests)
    whole = play(continuous(448, seats=8, budget=160), requests)
    assert (chunk.preemptions, chunk.told["late"].preempted, chunk.recomputed) == (62, 41, 40_010)
    assert (whole.preemptions, whole.recomputed) == (1, 1772)
    assert (whole.told["late"].admitted, whole.told["late"].first_token) == (420, 430)
    assert abs(chunk.steps - whole.steps) <= 1 and 645 <= chunk.steps <= 647


def test_09_a_preempted_request_loses_its_turn() -> None:
    """A (arrived at 5, preempted) stands behind B (arrived at 3, never started) of the same priority. By arrival alone
    that is so; `preempted_first` lets it go ahead, but only so often, so that B cannot starve either."""
    a, b = Sequence("A", range(8), 4, arrival=5.0), Sequence("B", range(8), 4, arrival=3.0)
    a.preemptions = 1
    assert [one.id for one in queue(0, a, b)] == ["B", "A"]
    assert [one.id for one in queue(2, a, b)] == ["A", "B"]
    a.preemptions = 3
    assert [one.id for one in queue(2, a, b)] == ["B", "A"]


def queue(boosts: int, *sequences: Sequence) -> ByPriority:
    waiting = ByPriority(boosts)
    for sequence in sequences:
        waiting.add(sequence)
    return waiting


@pytest.mark.parametrize(("ageing", "passes"), [(0, None), (10, 100), (50, 20), (250, 4)])
def test_13_the_longest_prefix_first(ageing: int, passes: int | None) -> None:
    """Requests whose prefix is cached keep coming, one a pass, and one without never starts. Right: each pass of
    waiting is worth some tokens of a match, so it starts after 1,000 / N passes."""
    hot = [Request(f"h{i}", 1 + i, 1008, 1, pieces=(("hot", 1000), (f"tail {i}", 8))) for i in range(150)]
    warm = Request("warm", 0, 1008, 1, pieces=(("hot", 1000), ("its tail", 8)))
    policy = continuous(2000, 8, seats=1, budget=8192, prefix_cache=True, order="longest_prefix", ageing=ageing)
    outcome = play(policy, [warm, Request("cold", 1, 300, 1), *hot], limit=140)
    assert outcome.told["cold"].admitted == (NEVER if passes is None else 1 + passes)


def test_18_nothing_is_ever_evicted() -> None:
    """With everything kept free that a request may need, 5 of 99 run though the memory looks free, and without a
    max_tokens one at a time. Evicting runs 40 at once, at the price of 260 preemptions."""
    requests = alike(99, 0, 60, 400)
    reserve = play(continuous(40, 64, budget=8192, admission="reserve_max_tokens"), requests)
    evict = play(continuous(40, 64, budget=8192), requests)
    assert (reserve.gauges[0], reserve.preemptions, reserve.steps) == ((5, 94), 0, 8000)
    assert (evict.peak_running, evict.preemptions, evict.steps) == (40, 260, 4746)


def test_18_without_max_tokens() -> None:
    """The whole pool is kept for each request: one at a time."""
    requests = alike(9, 0, 60, 400, max_tokens=40 * 64 - 60 + 1)
    assert play(continuous(40, 64, budget=8192, admission="reserve_max_tokens"), requests).peak_running == 1


def test_18_what_is_reserved_is_not_used() -> None:
    """The pool's gauge shows what is held, not what is promised."""
    policy = continuous(40, 64, budget=8192, admission="reserve_max_tokens")
    play(policy, alike(99, 0, 60, 400), limit=1)
    assert (policy.pool.used, len(policy.running)) == (5, 5)


def test_19_evicting_starts_earlier_and_stutters() -> None:
    """Using the memory to the full was reported to be slower than never evicting. What holds whatever a step costs:
    never evicting, no preemption and a flat time per token; evicting, an earlier first token for most, preemptions
    (74), and a worse tail of the time per token."""
    requests = alike(128, 0, 800, 512)
    never = play(continuous(400, budget=8192, admission="reserve_max_tokens"), requests)
    evict = play(continuous(400, budget=8192), requests)
    assert (never.preemptions, evict.preemptions) == (0, 74)
    assert all(one.finished - one.first_token == 511 for one in never.told.values())
    assert max(one.finished - one.first_token for one in evict.told.values()) > 511
    starts = [median(one.first_token for one in outcome.told.values()) for outcome in (evict, never)]
    assert starts[0] < starts[1]


def test_22_seats_cap_the_running_set() -> None:
    """Does max_num_seqs cap a step or the running set? The running set: the fifth waits until a seat is free."""
    outcome = play(continuous(100, seats=4), alike(5, 0, 8, 6))
    assert outcome.widths == [4] * 6 + [1] * 6
    assert outcome.runs == [(4, 1, 6), (1, 0, 6)]


class Deferred(Continuous):
    """Some requests wait for something outside (a grammar, KV from elsewhere) that never comes."""

    def ready(self, sequence: Sequence) -> bool:
        return not sequence.id.startswith("deferred")


def test_25_deferred_requests_hold_no_seat() -> None:
    """Four requests that wait for something outside fill the four seats, and nobody runs. Right: they hold none."""
    requests = [*alike(4, 0, 16, 4, "deferred "), Request("plain", 0, 16, 4)]
    outcome = play(continuous(100, seats=4, kind=Deferred), requests, limit=10)
    assert outcome.gauges[0] == (1, 4) and outcome.told["plain"].finished == 3
    assert outcome.gauges[-1] == (0, 4)


class Adapters(Continuous):
    """At most four adapters in one batch; a request's adapter is the part of its id after the colon."""

    most = 4

    def ready(self, sequence: Sequence) -> bool:
        wanted, loaded = adapter(sequence), {adapter(one) for one in self.running} - {""}
        return not wanted or wanted in loaded or len(loaded) < self.most


def adapter(sequence: Sequence) -> str:
    return sequence.id.partition(":")[2]


def test_26_one_adapter_too_many() -> None:
    """The first request whose adapter does not fit ends the scan. Right: those behind it that fit are let in."""
    adapters = ["", "", "", "L1", "L3", "L2", "L4", "L5", "L5", "L5", "L5", "", "", "L1", "L2", "L3"]
    requests = [Request(f"R{n}:{name}", 0, 16, 4) for n, name in enumerate(adapters, 1)]
    outcome = play(continuous(100, kind=Adapters), requests)
    started = [id for id, one in outcome.told.items() if one.admitted == 0]
    assert started == [one.id for one in requests if not one.id.endswith("L5")]
    assert all(outcome.told[one.id].admitted == 4 for one in requests if one.id.endswith("L5"))


@pytest.mark.parametrize(
    ("ratio", "waiting", "step"), [(1.2, 11, 25), (1.2, 12, 5), (0.3, 3, 5), (0.3, 2, 25), (0.3, 1, 25)]
)
def test_29_when_decodes_are_interrupted(ratio: float, waiting: int, step: int) -> None:
    """Requests join the running ones late. With 10 running: at a ratio of 1.2 fewer than 12 wait 20 decode steps, 12
    join at the next step; at .3 three join at once."""
    policy = continuous(5000, budget=8192, batching="prefill_first", waiting_served_ratio=ratio)
    outcome = play(policy, [*alike(10, 0, 16, 60, "r"), *alike(waiting, 5, 16, 4, "w")])
    assert {outcome.told[f"w{index}"].admitted for index in range(waiting)} == {step}
