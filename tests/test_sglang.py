"""The `sglang` policy in the simulated arm: its laws, its door, its faults, and many steps decided at once."""

import random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import ValidationError

from arcsim.engine.loop import Loop
from arcsim.engine.stepper import Stepper
from arcsim.policies.base import EmulatedSample, EngineConfig, Sequence, Step
from arcsim.policies.kv.token_cache import TokenCache
from arcsim.policies.sequence import Clock
from arcsim.policies.sglang import Sglang
from arcsim.policies.sglang_door import default_seats
from arcsim.policies.sglang_lookahead import Lookahead
from arcsim.policies.sglang_options import SglangOptions
from arcsim.policies.sglang_order import Order
from arcsim.policies.sglang_request import Request
from arcsim.sim.backend import SimulatedBackend
from arcsim.sim.latency.affine import Affine
from arcsim.workloads.arrival import Arrival
from arcsim.workloads.requests import OpenSession

SECOND_EACH = Affine(decode_step=1.0, prefill_step=1.0)


class OneByOne(Sglang):
    """Decides every step on its own."""

    def horizon(self, step: Step) -> int:
        return 0


def policy(
    kind: type[Sglang] = Sglang, *, pool: int = 512, page: int = 1, seats: int | None = None,
    context: int | None = None, **options: Any,
) -> Sglang:
    engine = EngineConfig(block_size=page, num_blocks=pool // page, max_num_seqs=seats, max_model_len=context)
    return kind(engine, SglangOptions(**options))


def served(policy: Sglang, arrivals: list[Arrival], latency: Affine = SECOND_EACH) -> Loop:
    loop = Loop(policy, OpenSession(tuple(arrivals)), SimulatedBackend(latency), audit=True)
    loop.run()
    return loop


def request(name: str, prompt: int, output: int, time: float = 0.0, *, asked: int | None = None) -> Arrival:
    return Arrival(name, time, ((name, prompt),), output, output if asked is None else asked)


def table(loop: Loop) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in loop.recorder.run({}).requests.to_pylist()}


def random_arrivals(rng: random.Random) -> list[Arrival]:
    arrivals, time = [], 0.0
    for number in range(rng.randint(5, 30)):
        time += rng.choice([0, 0, 0, 0.002, 0.01, 0.2])
        length, output = rng.randint(2, 120), rng.randint(1, 60)
        shared = min(length - 1, rng.choice([1, 20, 40, 64]))
        pieces = ((f"group {rng.randint(0, 3)}", shared), (f"own {number}", length - shared))
        arrivals.append(Arrival(f"r{number}", time, pieces, output, rng.choice([output, rng.randint(output, 120)])))
    return arrivals


def random_options(rng: random.Random) -> dict[str, Any]:
    choices: dict[str, list[Any]] = {
        "schedule_policy": ["fcfs", "lpm", "lof", "dfs-weight"], "chunked_prefill_size": [-1, 16, 32, 96, 8192],
        "max_prefill_tokens": [64, 16384], "enable_mixed_chunk": [False, True], "disable_radix_cache": [False, True],
        "ignore_eos": [False, False, True], "init_new_token_ratio": [0.05, 0.3, 0.7], "max_queued_requests": [None, 6],
        "prefill_max_requests": [None, 2], "clip_max_new_tokens": [16, 4096], "seats": [None, 2, 16],
        "page": [1, 4, 16], "pool": [192, 320, 512],
    }
    return {name: rng.choice(values) for name, values in choices.items()}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_the_laws_hold_and_every_request_gets_its_output(seed: int, normal: bool) -> None:
    """With retractions, chunks, mixed steps and evictions. The audit checks the ledger after every step."""
    rng = random.Random(seed)
    arrivals, options = random_arrivals(rng), random_options(rng)
    latency = Affine(decode_step=0.001, prefill_step=0.002, context_token=1e-8)
    loop = served(policy(disable_overlap_schedule=normal, **options), arrivals, latency)
    assert loop.outcome == "completed"
    rows, outputs = table(loop), {arrival.id: arrival.output for arrival in arrivals}
    for name, row in rows.items():
        if row["status"] == "finished":
            assert row["output_tokens"] == outputs[name]
        else:
            assert row["reason"] and row["output_tokens"] < outputs[name]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_many_steps_at_once_are_the_steps_one_by_one(seed: int) -> None:
    runs = []
    for kind in (Sglang, OneByOne):
        rng = random.Random(seed)
        arrivals, options = random_arrivals(rng), random_options(rng)
        loop = served(policy(kind, disable_overlap_schedule=True, **options), arrivals, Affine(decode_step=0.001))
        run = loop.recorder.run({})
        runs.append((run.steps.to_pylist(), repr(run.requests.to_pylist()), loop.recorder.events))
    assert runs[0] == runs[1]


def test_many_steps_are_decided_at_once() -> None:
    """Up to the step in which the first output may end."""
    chosen = policy(disable_overlap_schedule=True)
    stepper = Stepper(chosen)
    for name in ("a", "b"):
        stepper.arrive(Sequence(name, range(10), 50), 50)
    step = stepper.schedule(0.0).step
    stepper.commit(step, EmulatedSample(step.sampling))
    assert stepper.horizon(stepper.schedule(0.0).step) == 48


def test_with_overlap_a_finished_request_wastes_one_token() -> None:
    for normal, wasted, steps in ((True, 0, 5), (False, 1, 6)):
        loop = served(policy(disable_overlap_schedule=normal), [request("a", 10, 5)])
        run = loop.recorder.run({})
        assert (run.column("wasted_tokens").sum(), (run.column("forward_width") > 0).sum()) == (wasted, steps)
        assert table_of(run)["output_tokens"] == [5]


def table_of(run: Any) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = run.requests.to_pydict()
    return columns


def test_what_the_engine_would_never_serve_is_turned_away_with_the_numbers() -> None:
    arrivals = [
        request("stuck", 115, 8), request("behind", 10, 3), request("cut", 60, 66), request("full", 60, 67),
    ]
    rows = table(served(policy(pool=128, page=16), arrivals[:2]))
    assert rows["behind"]["status"] == "finished"
    assert rows["stuck"]["reason"] == (
        "prompt 115 + max_tokens 8 do not fit a pool of 128 tokens, of which SGLang keeps a page of 16 and a token free"
    )
    rows = table(served(policy(pool=128), arrivals[2:]))
    assert (rows["cut"]["status"], rows["full"]["status"]) == ("finished", "rejected")
    rows = table(served(policy(context=100), [request("long", 94, 4), request("longest", 93, 4, asked=500)]))
    assert rows["long"]["reason"] == "prompt 94 is not below the longest that SGLang serves here, 94"
    assert rows["longest"]["output_tokens"] == 4


def test_strict_a_refused_prompt_is_answered_with_a_stub_and_max_tokens_are_cut() -> None:
    rows = table(served(policy(pool=128, strict_sglang=True), [request("a", 130, 4), request("b", 60, 200)]))
    assert (rows["a"]["status"], rows["a"]["output_tokens"]) == ("rejected", 0)
    assert (rows["b"]["status"], rows["b"]["output_tokens"]) == ("finished", 66)


def test_strict_a_request_that_never_fits_hangs_the_engine_and_ends_the_run_with_a_report() -> None:
    arrivals = [request("a", 20, 3), request("stuck", 115, 4, 1.0, asked=8), request("behind", 10, 3, 2.0)]
    loop = served(policy(pool=128, page=16, strict_sglang=True), arrivals)
    assert loop.outcome == "stalled"
    assert "50 empty steps in a row" in loop.report
    assert "stuck: 115 tokens, 0 computed, holds 0 blocks, needs 8 more blocks" in loop.report


CROWD = [request("a", 10, 60), *(request(name, 10, n, asked=60) for name, n in (("b", 10), ("c", 11), ("d", 12))),
         request("L", 230, 4, 0.5)]
"""Mixed chunks of a long prompt take the memory that the running requests decode into."""


def test_an_allocation_error_ends_the_run_if_strict_and_else_the_request_is_rejected() -> None:
    crowded: dict[str, Any] = {
        "pool": 300, "chunked_prefill_size": 32, "enable_mixed_chunk": True, "init_new_token_ratio": 0.05
    }
    loop = served(policy(strict_sglang=True, **crowded), CROWD)
    assert (loop.outcome, loop.report.splitlines()[1]) == ("engine fault", "Try to allocate 16 tokens.")
    loop = served(policy(**crowded), CROWD)
    rows = table(loop)
    assert loop.outcome == "completed"
    assert rows["L"]["reason"] == "SGLang would run out of memory in its next chunk"
    assert all(rows[name]["status"] == "finished" for name in "abcd")


def test_mixed_rows_without_memory_stay_out_of_the_step_unless_strict() -> None:
    """With pages the estimate leaves a token for each running request where each may need a page."""
    arrivals = [*(request(f"r{n}", 16, 12, asked=13) for n in range(6)), request("late", 40, 4, 1.5)]
    options: dict[str, Any] = {"page": 16, "pool": 192, "enable_mixed_chunk": True, "init_new_token_ratio": 0.0}
    assert served(policy(**options), arrivals).outcome == "completed"


def test_a_second_prompt_is_not_cut_in_a_step_unless_strict() -> None:
    """A cut prompt ends on a page; what is left of the chunk goes to one that ignores EOS, and is cut anywhere."""
    for strict, outcome in ((False, "completed"), (True, "engine fault")):
        chosen = policy(
            page=16, chunked_prefill_size=32, enable_mixed_chunk=True, disable_radix_cache=True,
            disable_overlap_schedule=True, strict_sglang=strict,
        )
        arrivals = [request("r", 10, 30), request("a", 60, 4, 2.5), request("b", 90, 4, 2.5)]
        loop = Loop(chosen, OpenSession(tuple(arrivals)), SimulatedBackend(SECOND_EACH))
        add = chosen.add

        def mark(sequence: Sequence) -> str | None:
            sequence.ignore_eos = sequence.id == "b"
            return add(sequence)  # noqa: B023 - called within this turn of the loop

        chosen.add = mark  # type: ignore[method-assign]
        loop.run()
        assert loop.outcome == outcome
        assert ("a and b are both computed in part" in loop.report) == strict


def test_a_chunk_is_whole_pages_unless_strict() -> None:
    """The server refuses it; the scheduler alone goes on, and a chunk below a page never runs."""
    with pytest.raises(ValueError, match=r"chunked_prefill_size \(33\) .* give 32"):
        policy(page=16, chunked_prefill_size=33)
    loop = served(policy(page=16, chunked_prefill_size=8, strict_sglang=True), [request("a", 20, 4)])
    assert loop.outcome == "stalled"


def test_a_full_queue_turns_newcomers_away_and_retracted_requests_too() -> None:
    rows = table(served(policy(seats=2, max_queued_requests=1), [request(f"r{n}", 10, 5) for n in range(4)]))
    assert [row["status"] for row in rows.values()] == ["finished"] + ["rejected"] * 3
    crowded = policy(pool=200, init_new_token_ratio=0.05, max_queued_requests=4, disable_radix_cache=True)
    queue = [request(f"q{n}", 100, 60, 20.0 + n) for n in range(4)]
    loop = served(crowded, [request(f"r{n}", 10, 60) for n in range(4)] + queue)
    turned = [row for row in table(loop).values() if "queue is full" in row["reason"] and row["preemptions"]]
    assert turned


def test_requests_that_leave_give_everything_back() -> None:
    for overlap in (False, True):
        chosen = policy(pool=256, chunked_prefill_size=16, disable_overlap_schedule=not overlap)
        stepper = Stepper(chosen)
        sequences = [Sequence(f"r{n}", range(100 * n, 100 * n + 40), 20) for n in range(4)]
        flying = []
        for sequence in sequences:
            stepper.arrive(sequence, 20)
        for number in range(12):
            flying.append(stepper.schedule(0.0).step)
            if len(flying) > overlap:
                step = flying.pop(0)
                stepper.commit(step, EmulatedSample(step.sampling))
            if number % 3 == 1:
                stepper.abort(sequences[number // 3])
            assert chosen.cache.violations([*chosen.waiting, *chosen.running]) == []
        assert (chosen.cache.used, chosen.free_seats, list(chosen.running)) == (0, chosen.seats, [])


def kept(cache: TokenCache, name: str, prompt: range) -> None:
    """A finished request leaves its prompt in the tree."""
    sequence = Sequence(name, prompt, 1)
    cache.start(sequence, *cache.match(sequence.tokens, 0))
    cache.grow(sequence, len(prompt))
    cache.finish(sequence, len(prompt))


def test_the_order_that_a_look_at_the_queue_made_lasts() -> None:
    """Ties keep the order of the last look, even when what made it is gone from the tree."""
    cache = TokenCache(100, 1, radix=True)
    order = Order(SglangOptions.model_validate({"schedule_policy": "lpm"}), cache)
    queue = [Sequence(name, range(start, start + 10), 1) for name, start in (("a", 0), ("b", 100), ("c", 200))]
    kept(cache, "old", range(100, 110))
    order.sort(queue)
    assert [sequence.id for sequence in queue] == ["b", "a", "c"]
    cache.pool.release(cache.tree.evict(10))
    order.sort(queue)
    assert [sequence.id for sequence in queue] == ["b", "a", "c"]


def test_a_request_that_is_not_let_in_has_left_its_trace_in_the_tree() -> None:
    """It is looked up before anything else is asked: the node in which its prefix ends is split, and visited."""
    chosen = policy(prefill_max_requests=1, disable_overlap_schedule=True)
    kept(chosen.cache, "old", range(20))
    for name, prompt in (("first", range(100, 110)), ("second", [*range(5), 99])):
        chosen.add(Sequence(name, prompt, 4))
    step = chosen.schedule(0.0)
    assert [sequence.id for sequence in step.admitted] == ["first"]
    assert sorted(node.length for node in chosen.cache.tree.nodes()) == [5, 15]


def test_a_look_ahead_puts_whoever_has_the_most_left_before_the_last() -> None:
    """So the engine does; in its place it would be looked at last, when more has been given back."""
    clock = Clock()
    small, middle, large = (Request(Sequence(str(n), range(10), n), clock) for n in (10, 20, 30))
    for request in (small, middle, large):
        request.sequence.ignore_eos = True
    ahead = Lookahead(small, [middle], 1.0)
    ahead.insert(large)
    # in this order: 10 left of three; then 30 left of two, with 10 back; then 20 left of one, with 20 back
    assert not ahead.fits(52)
    assert ahead.fits(53)
    lone = Lookahead(small, [], 1.0)
    lone.insert(large)
    assert (lone.fits(62), lone.fits(63)) == (False, True)  # 30 left of two


def test_options_are_sglangs() -> None:
    chosen = policy()
    assert chosen.overlap
    choice = chosen.choice
    assert (choice.chunked_prefill_size, choice.max_prefill_tokens, choice.schedule_policy) == (8192, 16384, "fcfs")
    assert [default_seats(400_000, context) for context in (None, 32768, 4096)] == [2048, 4096, 4096]
    with pytest.raises(ValidationError, match="-1 to leave prompts whole"):
        SglangOptions.model_validate({"chunked_prefill_size": 0})
    with pytest.raises(ValidationError, match="'fcfs', 'lpm', 'lof' or 'dfs-weight'"):
        SglangOptions.model_validate({"schedule_policy": "random"})
