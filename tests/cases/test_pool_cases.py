"""Reported faults at the limits of the KV pool: what can never fit, what just fits, and who makes room."""

import pytest

from arcsim.engine.loop import Loop
from arcsim.policies.base import EngineConfig, Step
from arcsim.policies.mistralrs_paged import MistralrsPaged, MistralrsPagedOptions
from arcsim.policies.sglang import Sglang
from arcsim.policies.sglang_options import SglangOptions

from ..serving import Given, Watching, request
from .play import Request, alike, continuous, play


def paged(blocks: int, size: int = 16, **options: object) -> MistralrsPaged:
    """`blocks` are usable ones."""
    engine = EngineConfig(block_size=size, num_blocks=blocks + 1, max_num_seqs=32)
    return MistralrsPaged(engine, MistralrsPagedOptions(**({"caching": "none", "decode": "ragged"} | options)))  # type: ignore[arg-type]


def test_01_larger_than_the_pool() -> None:
    """Requests larger than the pool wait for ever, 0 running, no error. Right: turned away with the numbers. The engine
    that looks 64 times and then drops the request without telling anybody is `strict_mistralrs`."""
    default = play(paged(49), alike(5, 0, 1002, 50))
    assert default.steps == 0 and all("needs 66 blocks" in reason for reason in default.rejected.values())
    strict = play(paged(49, strict_mistralrs=True), alike(5, 0, 1002, 50))
    assert strict.runs[:2] == [(0, 5, 64), (0, 4, 64)] and strict.finished == 0


def test_01_a_stall_is_reported() -> None:
    """Let in all the same, it never runs, and the run ends saying who waits for what."""
    policy = continuous(49, reject_oversize=False)
    loop = Loop(policy, Given([request("big", 1002, 50)]), Watching(), audit=True)
    loop.run()
    assert loop.outcome == "stalled"
    assert "big: 1002 tokens, 0 computed, holds 0 blocks, needs 63 more blocks" in loop.report


@pytest.mark.parametrize(("output", "steps"), [(9, 12), (10, 0)])
def test_02_prompt_and_output_that_just_fit(output: int, steps: int) -> None:
    """Served until the pool ends in the middle of the output. Right: prompt + output - 1 tokens must fit at the door:
    1,000 + 9 - 1 fill 63 blocks of 16, one token more is turned away."""
    outcome = play(continuous(63, seats=4, budget=256), [Request("a", 0, 1000, output)])
    assert (outcome.steps, bool(outcome.rejected)) == (steps, steps == 0)


def test_10_the_oldest_is_preempted() -> None:
    """Memory runs out and the request that came first loses its blocks. The fork does that; the later engine takes the
    newest, and everybody else ends as if nothing had happened."""
    requests = [Request(f"s{index}", index, 64, 64) for index in range(3)]
    oldest, newest = play(paged(18, victim="oldest"), requests), play(paged(18, victim="newest"), requests)
    assert oldest.preemptions == newest.preemptions == 1
    assert (oldest.told["s0"].preempted, newest.told["s2"].preempted) == (1, 1)
    assert newest.told["s0"].finished < oldest.told["s0"].finished


@pytest.mark.parametrize("victim", ["oldest", "newest"])
def test_12_two_that_need_the_last_block(victim: str) -> None:
    """The scheduler preempts a request, looks at it again at once, preempts it again, and never returns. Right: each
    request is looked at once in a pass, and a pass ends."""
    requests = [Request("a", 0, 8, 8), Request("b", 1, 8, 8)]
    for policy in (paged(4, 4, victim=victim), continuous(4, 4), continuous(4, 4, admission="chunk_only")):
        outcome = play(policy, requests, limit=100, watch=lambda _, step: looked_at_once(step.examined))
        assert outcome.finished == 2 and outcome.steps == 16


def looked_at_once(examined: object) -> None:
    seen = list(examined)  # type: ignore[call-overload]
    assert len(seen) == len(set(seen))


def optimistic(conservativeness: float, **options: object) -> Sglang:
    chosen = {"schedule_conservativeness": conservativeness, "disable_overlap_schedule": True} | options
    return Sglang(EngineConfig(block_size=1, num_blocks=20_000), SglangOptions.model_validate(chosen))


def long_outputs(apart: int) -> list[Request]:
    """Each says that it may need four times what it will."""
    return [Request(f"q{index}", apart * index, 500, 1000, max_tokens=4096) for index in range(60)]


@pytest.mark.parametrize("conservativeness", [0.1, 0.3, 1.0, 1.3])
def test_14_a_full_batch_stays_full(conservativeness: float) -> None:
    """Reserving a share of the output lets too many in, and they are evicted again. The report's model counts 20, 13,
    28 and 23 retractions, since it asks in every pass whether there is room. The engine's flag, once set, stays until
    somebody leaves (recorded steps show it): of requests that come at once seven run, and nobody is evicted."""
    outcome = play(optimistic(conservativeness), long_outputs(0))
    assert (outcome.preemptions, outcome.finished, outcome.peak_running) == (0, 60, 7)


@pytest.mark.parametrize(("conservativeness", "retractions"), [(0.1, 7), (0.3, 3), (1.0, 0), (1.3, 0)])
def test_14_the_more_optimistic_the_more_retractions(conservativeness: float, retractions: int) -> None:
    """Those that come one by one are let in while the flag is down. Right: a retraction leaves somebody running, and
    all are served."""
    left: list[int] = []
    outcome = play(
        optimistic(conservativeness), long_outputs(5),
        watch=lambda _, step: left.append(step.totals.width) if step.preempted else None,
    )
    assert (outcome.preemptions, outcome.finished) == (retractions, 60) and all(left)


@pytest.mark.parametrize("limit", [None, 1])
def test_14_a_retracted_request_is_not_turned_away(limit: int | None) -> None:
    """Its retraction may find the queue full, and the engine then drops what was half done (`max_queued_requests`).
    Right: without a limit nobody is lost."""
    dropped: list[str] = []

    def watch(_: int, step: Step) -> None:
        dropped.extend(sequence.id for sequence, _ in step.rejected)

    outcome = play(optimistic(0.1, max_queued_requests=limit), long_outputs(5), watch=watch)
    assert bool(dropped) == (limit is not None)
    assert outcome.finished == 60 - len(dropped) - len(outcome.rejected)


@pytest.mark.parametrize(("output", "rejected"), [(24, False), (25, False), (26, True)])
def test_16_exactly_at_the_limit(output: int, rejected: bool) -> None:
    """A request of exactly the pool's size is neither let in nor turned away. Right: 1,023 and 1,024 tokens run,
    1,025 are turned away; there is nothing in between."""
    outcome = play(continuous(1024 // 64, 64), [Request("a", 0, 1000, output)])
    assert (outcome.finished == 0) == rejected == bool(outcome.rejected)


def test_17_tokens_against_pages() -> None:
    """15 sequences each append a token and 5 pages are free: counted in tokens there is room, but six of them start a
    new page, and the allocation fails. Right: who starts a page is counted, and one makes room."""
    lengths = [163, 157, 157, 157, 131, 131, 131, 129, 131, 129, 285, 129, 129, 129, 129]
    requests = [Request(f"q{index}", 0, length - 1, 5) for index, length in enumerate(lengths)]
    policy = continuous(30, 128, seats=64, budget=8192)
    free: list[int] = []
    outcome = play(policy, requests, limit=2, watch=lambda _, step: free.append(policy.pool.free))
    assert (free[0], outcome.preemptions, outcome.gauges[1]) == (5, 1, (14, 1))


def test_24_freed_blocks_that_arrive_late() -> None:
    """The blocks of a preempted request are still being copied away, so the scheduler preempts one more, and one more.
    Right: what is on its way is counted, and at most one is preempted."""
    requests = alike(3, 0, 9, 6)
    hasty = play(continuous(9, 4, free_delay=2, wait_for_freed=False), requests)
    patient = play(continuous(9, 4, free_delay=2), requests)
    assert hasty.preemptions == 3 and hasty.runs == [(3, 0, 4), (0, 3, 2), (2, 1, 2), (0, 1, 1), (1, 0, 2)]
    assert patient.preemptions == 1 and patient.runs == [(3, 0, 4), (2, 1, 4), (0, 1, 1), (1, 0, 2)]
    assert (hasty.recomputed, patient.recomputed) == (36, 12)


def test_30_a_shared_pool_runs_full() -> None:
    """Two slots share 1,024 tokens: a third request is refused, and when the pool is full both running ones are killed.
    Right: the third waits, and one of the two makes room for the other."""
    requests = [Request("a", 0, 400, 300), Request("b", 0, 400, 300), Request("c", 0, 10, 5)]
    outcome = play(continuous(1024, 1, seats=2, budget=8192), requests)
    assert outcome.runs[:2] == [(2, 1, 113), (1, 2, 187)]
    assert outcome.finished == 3 and outcome.preemptions == 1 and not outcome.rejected


@pytest.mark.parametrize(("blocks", "peak", "steps"), [(17, 17, 789), (16, 16, 906)])
def test_34_huge_blocks(blocks: int, peak: int, steps: int) -> None:
    """With blocks of 4,096 tokens the pool was counted in tokens: 32 running or a crash. Right: one block each."""
    outcome = play(continuous(blocks, 4096, seats=32, budget=128), alike(100, 0, 128, 128))
    assert (outcome.peak_running, outcome.preemptions, outcome.steps) == (peak, 0, steps)


def test_40_a_resource_that_is_never_there() -> None:
    """One request is in the system and every batch is empty, for ever. Right: the run ends and says so."""

    class Never(type(continuous(10))):  # type: ignore[misc]
        def ready(self, sequence: object) -> bool:
            return False

    loop = Loop(continuous(10, kind=Never), Given([request("stuck", 20, 5)]), Watching(), audit=True)
    loop.run()
    assert loop.outcome == "stalled" and "stuck" in loop.report
