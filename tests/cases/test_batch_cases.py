"""Reported faults of what shares a step, of the prefix cache, and of the gauges."""

import pytest

from arcsim.engine.loop import Loop
from arcsim.policies.base import EngineConfig
from arcsim.policies.mistralrs_paged import MistralrsPaged, MistralrsPagedOptions
from arcsim.policies.vllm import Vllm
from arcsim.policies.vllm_options import VllmOptions
from arcsim.sim.backend import SimulatedBackend
from arcsim.sim.latency.affine import Affine

from ..serving import Given, request, serve
from .play import Request, alike, continuous, play


def mistralrs(decode: str, prefill: str) -> MistralrsPaged:
    engine = EngineConfig(block_size=16, num_blocks=101, max_num_seqs=32)
    options = {"decode": decode, "prefill": prefill, "caching": "none"}
    return MistralrsPaged(engine, MistralrsPagedOptions.model_validate(options))


def sharing(name: str, own: int, shared: int = 256) -> tuple[tuple[str, int], ...]:
    return (("shared", shared), (f"only {name}", own))


def test_07_a_lookup_for_every_try() -> None:
    """A blocked request is looked up at every pass, and each look-up counts as a hit: 39.68 % instead of 22.22 %."""
    first, second = sharing("r0", 256), sharing("r1", 384)
    requests = [Request("r0", 0, 512, 100, pieces=first), Request("r1", 1, 640, 4, pieces=second)]
    outcome = play(continuous(55, prefix_cache=True), requests)
    assert outcome.lookups == 101 and round(100 * 256 * 100 / (512 + 640 * 100), 2) == 39.68
    assert (outcome.hits, outcome.queries, round(100 * outcome.hits / outcome.queries, 2)) == (256, 1152, 22.22)
    assert (outcome.told["r1"].admitted, outcome.told["r1"].cached_at_admission) == (100, 256)


def test_11_only_equal_lengths_share_a_step() -> None:
    """Two requests of different lengths preempt each other at every token though memory is free. The engine does that
    (`decode: bucketed`); right: nobody is preempted (`ragged`, and `length_rule` for the prompts)."""
    requests = [Request("a", 0, 30, 20), Request("b", 0, 50, 20)]
    bucketed = play(mistralrs("bucketed", "bucketed"), requests)
    ragged = play(mistralrs("ragged", "length_rule"), requests)
    assert (bucketed.preemptions, bucketed.steps) == (20, 40)
    assert (ragged.preemptions, ragged.recomputed, ragged.steps) == (0, 0, 20)


def test_15_a_batch_that_was_full_once() -> None:
    """The last chunk of a prefill marks the batch as full, and one of four seats stays empty until somebody ends.
    Right: whether there is a seat is asked anew in each pass."""
    outcome = play(continuous(1000, seats=4), alike(4, 0, 600, 5))
    assert outcome.gauges[1] == (4, 0) and all(one.first_token <= 1 for one in outcome.told.values())


@pytest.mark.parametrize(("cap", "shorts", "long"), [(0, 16, 15), (4096, 1, 31)])
def test_21_short_prompts_behind_a_long_one(cap: int, shorts: int, long: int) -> None:
    """A prompt of 131,072 tokens takes the whole budget of each step; four short ones wait for all its chunks. A cap on
    one request's chunk lets them in at once, at the price of a later first token of the long one."""
    policy = continuous(20_000, seats=16, budget=8192, long_prefill_token_threshold=cap)
    outcome = play(policy, [Request("L", 0, 131_072, 16), *alike(4, 1, 128, 16)])
    assert {outcome.told[f"q{index}"].first_token for index in range(4)} == {shorts}
    assert outcome.told["L"].first_token == long


@pytest.mark.parametrize(("ahead", "more", "forwards", "wasted"), [
    (False, 0, 4, 0), (True, 0, 4, 0), (False, 5, 4, 0), (True, 5, 5, 1)])
def test_23_one_step_too_many(ahead: bool, more: int, forwards: int, wasted: int) -> None:
    """Scheduling ahead runs one step more than max_tokens asks for. Right: four tokens take four forward passes, since
    the engine knows max_tokens. Only an end that it cannot know (by EOS, here five tokens early) costs a fifth one,
    whose token is thrown away."""
    engine = EngineConfig(num_blocks=100, max_num_seqs=8, max_num_batched_tokens=2048, max_model_len=1000)
    policy = Vllm(engine, VllmOptions.model_validate({"async_scheduling": ahead}))
    served = serve(policy, [request("a", 10, 4, max_tokens=4 + more)])
    assert (sum(served.ints("forward_width")), served.total("wasted_tokens")) == (forwards, wasted)
    assert served.requests["a"]["output_tokens"] == 4


@pytest.mark.parametrize("output", [4, 1])
def test_23_the_seat_is_free_with_the_last_token(output: int) -> None:
    """A request of one token lingers among the running. Right: as many steps as tokens, and it has left."""
    policy = continuous(10)
    outcome = play(policy, [Request("a", 0, 10, output)])
    assert outcome.steps == output and len(policy.running) == 0


@pytest.mark.parametrize(("order", "cached"), [("tail_first", 8), ("head_first", 0)])
def test_28_which_end_is_used_up_first(order: str, cached: int) -> None:
    """The blocks of an ended request are handed out again from its first one, so its whole prefix is lost with the
    first new block. Right: from its last one."""
    same = (("x", 12),)
    requests = [Request("A", 0, 12, 1, pieces=same), Request("B", 1, 4, 1), Request("C", 2, 12, 1, pieces=same)]
    outcome = play(continuous(3, 4, prefix_cache=True, free_order=order), requests)
    assert outcome.told["C"].cached_at_admission == cached


def test_31_gauges_that_count_the_waiting_as_running() -> None:
    """One seat, ten requests: ten running, nobody waiting, says the gauge. Right: 1 and 9, and all accounted for."""
    outcome = play(continuous(1000, seats=1), alike(10, 0, 64, 8))
    assert outcome.runs == [(1, waiting, 8) for waiting in range(9, -1, -1)]


def test_33_counters_after_a_preemption() -> None:
    """After preemptions more tokens are cached than the prompt has, queue times are negative, output is missing."""
    requests = [request(f"q{index}", 64, 64, index / 2) for index in range(12)]
    served = serve(continuous(40, prefix_cache=True), requests)
    assert served.total("preempted") > 0
    for row in served.requests.values():
        assert 0 <= row["cached_tokens"] < row["prompt_tokens"] and row["output_tokens"] == 64
        assert row["arrival"] <= row["first_scheduled"] < row["first_token"] < row["finish"]


def test_36_a_prefix_that_is_found_too_late() -> None:
    """Five equal prompts, one prefilled a step: each is computed whole, because a prefix is found only once its request
    has ended. Right: once its prefill has, so all four others are let in at the next step."""
    requests = alike(5, 0, 4096, 10, pieces=(("the prompt", 4096),))
    found, lost = (play(continuous(1000, 32, budget=4096, prefix_cache=cache), requests) for cache in (True, False))
    assert [found.told[f"q{index}"].cached_at_admission for index in range(1, 5)] == [4064] * 4
    assert (sum(found.prefill_tokens), found.gauges[1]) == (4224, (5, 0))
    assert sum(lost.prefill_tokens) == 20_480


def test_37_arrivals_beside_running_decodes() -> None:
    """Every arrival halted all decodes (see C37a); in mixed steps they go on, and it takes 60 steps instead of 65."""
    outcome = play(continuous(2000, budget=1024), alike(20, 0, 32, 60, "r") + alike(9, 30, 500, 8, "n"))
    assert outcome.steps == 60
    assert all(one.finished - one.first_token == len(one.tokens) - 1 for one in outcome.told.values())


def test_38_a_log_window_is_arithmetic() -> None:
    """100 prompts of 40,000 tokens at 24,000 tokens a second: 6 are prefilled per window of 10 s, and each window fills
    11.65 % more of a pool of 2.06 million tokens."""
    requests = [request(f"q{index}", 40_000, 1000) for index in range(100)]
    policy = continuous(2_060_000 // 16, seats=100, budget=2400)
    latency = Affine(prefill_step=0.0, padded_prefill_token=1 / 24_000)
    loop = Loop(policy, Given(requests), SimulatedBackend(latency))
    loop.run()
    steps = loop.recorder.run({}).steps.to_pandas()
    windows = [steps[(steps.t_end > start + 1e-6) & (steps.t_end <= start + 10 + 1e-6)] for start in (0, 10, 20, 30)]
    assert [window.prefill_tokens.sum() / 40_000 for window in windows] == [pytest.approx(6, rel=0.01)] * 4
    ends = [100 * window.kv_used.iloc[-1] * 16 / 2_060_000 for window in windows]
    growth = [later - earlier for earlier, later in zip(ends, ends[1:], strict=False)]
    assert growth == [pytest.approx(11.65, rel=0.015)] * 3


def test_39_whole_prompts_within_the_budget() -> None:
    """A budget of 16,384 tokens lets in three prompts of 5,000 a step, so that batches look too small."""
    policy = continuous(60 * 400, budget=16_384, batching="prefill_first", chunked_prefill=False)
    outcome = play(policy, alike(60, 0, 5000, 40))
    assert outcome.gauges[:20] == [(3 * step, 60 - 3 * step) for step in range(1, 21)]
    assert outcome.steps == 59
