"""Continuous batching: budget, seats, chunks, preemption, admission and the prefix cache."""

import pytest

from arcsim.engine.stepper import Stepper
from arcsim.policies.base import EmulatedSample, Sequence
from arcsim.workloads.arrival import Arrival

from .serving import Served, Spanning, arrive, continuous, request, sequence_of, serve, tick


def times(served: Served, column: str = "first_token") -> dict[str, float]:
    return {id: row[column] for id, row in served.requests.items()}


def rows(served: Served) -> list[str]:
    """Each step as `prefilled | decoded`, with the lengths of the chunks."""
    return [
        " ".join(f"{row}:{length}" for row, length in zip(seen.prefill, seen.lengths, strict=True))
        + " | " + " ".join(seen.decode)
        for seen in served.seen
    ]


# Batching, budget and chunks


def test_mixed_decodes_beside_the_chunks_of_a_prompt() -> None:
    """Six tokens a step: what the decoding row leaves goes to the prompt."""
    served = serve(continuous(seats=4, budget=6), [request("a", 4, 5), request("b", 13, 2, 1.0)])
    assert rows(served) == ["a4:4 | ", "b13:5 | a5", "b13:5 | a6", "b13:3 | a7", " | a8 b14"]


def test_prefill_first_decodes_only_when_no_prompt_can_run() -> None:
    """(Mutation tried: decode beside the prefill anyway.)"""
    policy = continuous(seats=4, budget=6, batching="prefill_first")
    served = serve(policy, [request("a", 4, 3), request("b", 13, 2, 1.0)])
    assert rows(served) == ["a4:4 | ", "b13:6 | ", "b13:6 | ", "b13:1 | ", " | a5 b14", " | a6"]


@pytest.mark.parametrize(("batching", "steps", "gap", "first"), [("mixed", 400, 1, 27), ("prefill_first", 416, 17, 26)])
def test_a_long_prefill_beside_a_decode(batching: str, steps: int, gap: int, first: int) -> None:
    """A public report: 65,535 tokens in chunks of 4,096 either stretch a running decode's gap to 17 steps, or take
    one step more themselves."""
    policy = continuous(6000, 16, 8, 4096, batching=batching)
    served = serve(policy, [request("A", 64, 400), request("B", 65_535, 1, 10.0)])
    at = served.requests["A"]["token_times"]
    assert len(served.run.steps) == steps and times(served)["B"] == first
    assert max(later - before for before, later in zip(at, at[1:], strict=False)) == gap


def test_short_prompts_wait_behind_all_chunks_of_a_long_one() -> None:
    shorts = [request(f"s{i}", 128, 16, 1.0) for i in range(4)]
    served = serve(continuous(20_000, 16, 16, 8192), [request("L", 131_072, 16), *shorts])
    assert len(served.run.steps) == 32
    assert times(served) == {"L": 16.0} | {f"s{i}": 17.0 for i in range(4)}


def test_without_chunks_a_prompt_waits_for_a_whole_share_of_the_budget() -> None:
    policy = continuous(seats=4, budget=10, chunked_prefill=False)
    served = serve(policy, [request("a", 6, 3), request("b", 6, 1), request("c", 2, 1)])
    assert rows(served) == ["a6:6 | ", "b6:6 c2:2 | a7", " | a8"]  # b does not fit beside a, and c waits behind it


def test_without_chunks_what_can_outgrow_the_budget_is_turned_away() -> None:
    """A preempted sequence is prefilled with its output, so the longest prompt is prompt + max_tokens - 1."""
    policy = continuous(seats=4, budget=10, chunked_prefill=False)
    assert policy.add(sequence_of(request("fits", 6, 5))) is None
    reason = policy.add(sequence_of(request("grows", 6, 6)))
    assert reason == "up to 11 tokens at once, max_num_batched_tokens is 10 and prefill is not chunked"
    assert continuous(seats=4, budget=10).add(sequence_of(request("cut", 60, 6))) is None


def test_a_budget_below_the_seats_is_refused() -> None:
    with pytest.raises(ValueError, match=r"engine.max_num_batched_tokens \(3\) is below engine.max_num_seqs \(4\)"):
        continuous(seats=4, budget=3)
    assert continuous(seats=None, budget=3).seats == 3


def test_without_any_limit_everyone_runs_at_once() -> None:
    served = serve(continuous(seats=None), [request(f"r{i}", 7, 2) for i in range(20)])
    assert served.ints("forward_width") == [20, 20] and served.total("prefill_tokens") == 140


# Seats and the order of admission


def test_seats_bound_the_running_set() -> None:
    """A public question: five requests on four seats are batches of 4 six times, then 1 six times."""
    served = serve(continuous(16, 16, 4), [request(f"r{i}", 8, 6) for i in range(5)])
    assert served.ints("forward_width") == [4] * 6 + [1] * 6
    assert served.ints("running") == [4] * 6 + [1] * 6 and served.ints("waiting") == [1] * 6 + [0] * 6


def test_a_head_that_does_not_fit_blocks_those_behind_it() -> None:
    """A public report: two light requests wait 98 steps behind a heavy one though they would fit."""
    requests = [request("r0", 960, 100), request("heavy", 1280, 8, 1.0), request("l1", 64, 8, 2.0),
                request("l2", 64, 8, 2.0)]
    served = serve(continuous(100, 16, 16, 2048), requests)
    assert times(served, "first_scheduled") == {"r0": 0.0, "heavy": 100.0, "l1": 100.0, "l2": 100.0}
    assert served.ints("waiting")[2:100] == [3] * 98


def test_admission_asks_for_the_whole_prompt_though_chunks_take_their_own() -> None:
    """b's first chunk would fit beside a, all of b does not; c behind it waits too. (Mutation tried: admission asks for
    the first chunk alone.)"""
    policy = continuous(3, 4, 4, 8, prefix_cache=False)
    served = serve(policy, [request("a", 4, 3), request("b", 12, 1), request("c", 4, 1)])
    assert [seen.admitted for seen in served.seen] == [("a",), (), (), ("b",), (), ("c",)]
    assert served.ints("kv_used")[3:5] == [2, 3]  # each chunk takes its own


# Blocks run out


def growing(victim: str) -> Served:
    """A public report: 18 blocks of 16, three requests of 64 + 64 tokens a step apart; the pool is full at step 33."""
    requests = [request("s1", 64, 64), request("s2", 64, 64, 1.0), request("s3", 64, 64, 2.0)]
    return serve(continuous(18, 16, 8, 2048, victim=victim, prefix_cache=False), requests)


@pytest.mark.parametrize(("victim", "finish", "recomputed"), [
    ("last", {"s1": 64.0, "s2": 65.0, "s3": 97.0}, 94), ("first", {"s1": 96.0, "s2": 65.0, "s3": 66.0}, 96),
])
def test_the_victim_is_the_last_or_the_first_that_was_admitted(
    victim: str, finish: dict[str, float], recomputed: int
) -> None:
    """(Mutation tried: the order of victims flipped.)"""
    served = growing(victim)
    (step,) = (place for place, seen in enumerate(served.seen) if seen.preempted)
    assert step == 33 and served.seen[33].preempted == ({"last": "s3", "first": "s1"}[victim],)
    assert times(served, "finish") == finish and served.total("recomputed_tokens") == recomputed


def test_who_is_preempted_comes_back_before_all_others() -> None:
    requests = [request("a", 3, 9), request("b", 3, 9), request("c", 3, 1, 1.0)]
    served = serve(continuous(4, 4, 2), requests)
    assert [seen.preempted for seen in served.seen if seen.preempted] == [("b",)]
    assert [row[0] for seen in served.seen for row in seen.prefill] == ["a", "b", "b", "c"]


def test_nobody_is_admitted_in_a_step_that_preempts() -> None:
    """b frees three blocks, a takes one: c's single one would fit at once, but b is ahead of it. (No mutation of the
    rule alone shows: the victim heads the queue, and it needs at least what it gave up.)"""
    requests = [request("a", 4, 9), request("b", 12, 2), request("c", 1, 1, 1.0)]
    served = serve(continuous(4, 4, 4), requests)
    assert served.seen[1].preempted == ("b",) and served.seen[1].admitted == served.seen[1].resumed == ()
    assert served.ints("kv_used")[1] == 2 and served.ints("waiting")[1] == 2


def test_nothing_is_freed_beyond_what_is_needed() -> None:
    """Two rows need a block and one is free: one victim, not two."""
    served = serve(continuous(7, 4, 4, prefix_cache=False), [request(id, 4, 3) for id in ("a", "b")] + [
        request("c", 16, 3)])
    assert [seen.preempted for seen in served.seen if seen.preempted] == [("c",)]


def test_a_preempted_prefill_starts_again() -> None:
    """b is half prefilled when a needs a block: it loses the two chunks it had."""
    served = serve(continuous(5, 4, 2, 3, prefix_cache=False), [request("a", 3, 9), request("b", 13, 1, 1.0)])
    assert served.requests["b"]["preemptions"] == 1 and served.total("preempted") == 1
    assert served.requests["b"]["recomputed_tokens"] > 0 and served.requests["b"]["output_tokens"] == 1


def test_a_chunk_that_finds_no_block_preempts_too() -> None:
    """With the first as the victim, the next chunk of P takes X's blocks; it does not wait for them."""
    served = serve(continuous(3, 4, 2, 3, victim="first"), [request("X", 1, 9), request("P", 8, 1, 1.0)])
    assert [(i, seen.preempted) for i, seen in enumerate(served.seen) if seen.preempted] == [(4, ("X",))]
    at = served.requests["X"]["token_times"]
    assert at == [1, 2, 3, 4, 6, 7, 8, 9, 10]  # in order, though it left the batch in a step of prefill alone


# The door


@pytest.mark.parametrize(("output", "steps"), [(9, 12), (10, None), (24, None)])
def test_a_request_that_exactly_fills_the_pool_is_served(output: int, steps: int | None) -> None:
    """A public report: 63 blocks of 16 hold 1008 tokens, the prompt takes 1000; the last token needs no room, so 9
    are served and 10 are not. (Mutation tried: the door without the - 1.)"""
    policy = continuous(63, 16, 4, 256)
    served = serve(policy, [request("a", 1000, output)])
    if steps is None:
        assert served.requests["a"]["status"] == "rejected" and served.requests["a"]["reason"] == (
            f"needs 64 blocks of 16 tokens (prompt 1000 + max_tokens {output} - 1), the pool has 63"
        )
    else:
        assert len(served.run.steps) == steps and served.requests["a"]["output_tokens"] == output
        assert served.run.column("kv_used").max() == 63 and served.total("preempted") == 0


def test_the_door_goes_by_what_was_asked_for_not_by_the_output() -> None:
    policy = continuous(4, 4)
    assert policy.add(sequence_of(request("a", 10, 1, max_tokens=7))) is None
    assert policy.add(sequence_of(request("b", 10, 1, max_tokens=8))) is not None
    assert policy.add(sequence_of(request("c", 16, 1, max_tokens=0))) is None  # one token always comes


def test_the_models_context_is_a_limit_of_its_own() -> None:
    policy = continuous(model_len=20)
    assert policy.add(sequence_of(request("a", 12, 8))) is None
    assert policy.add(sequence_of(request("b", 12, 9))) == "prompt 12 + max_tokens 9 exceeds max_model_len 20"


def test_a_rejected_head_does_not_hold_up_the_rest() -> None:
    shorts = [request(f"s{i}", 64, 8, 1.0) for i in range(4)]
    served = serve(continuous(49, 16, 8, 2048), [request("big", 1002, 50), *shorts])
    assert len(served.run.steps) == 8 and times(served, "finish")["s3"] == 9.0


# The prefix cache


SYSTEM = ("system", 32)


def with_system(id: str, own: int, output: int, at: float = 0.0) -> Arrival:
    return request(id, (SYSTEM, (f"own {id}", own)), output, at)


def test_a_beginning_is_found_while_its_first_request_runs() -> None:
    served = serve(continuous(40, 16), [with_system("a", 20, 9), with_system("b", 20, 9, 1.0)])
    assert served.seen[1].cached == (32,) and served.seen[1].tokens == 20
    assert served.ints("kv_used")[:2] == [4, 6]  # the two common blocks are held once
    assert served.requests["b"]["cached_tokens"] == 32 and served.requests["b"]["recomputed_tokens"] == 0
    assert (served.total("prefix_queries"), served.total("prefix_hits")) == (52 + 52, 32)


def test_it_is_found_after_its_request_has_finished() -> None:
    """Of a prompt that is there as a whole, the last block is computed again: something must be sampled from."""
    served = serve(continuous(20, 16, 4, 64), [request("A", (("t", 64),), 2), request("B", (("t", 64),), 2, 5.0)])
    assert served.requests["B"]["cached_tokens"] == 48 and served.requests["B"]["finish"] == 7.0
    assert [seen.tokens for seen in served.seen] == [64, 0, 16, 0]


def test_nothing_is_found_before_it_was_computed() -> None:
    """Both arrive at once: the second must not start from blocks that the same step is only about to write.
    (Mutation tried: blocks are published when they are given out.)"""
    served = serve(continuous(40, 16), [with_system("a", 20, 3), with_system("b", 20, 3)])
    assert served.seen[0].cached == (0, 0) and served.seen[0].tokens == 104 and served.total("prefix_hits") == 0


def test_a_chunked_prompt_is_found_as_far_as_it_has_come() -> None:
    served = serve(continuous(40, 16, 4, 40), [with_system("a", 60, 3), with_system("b", 8, 3, 1.0)])
    assert served.seen[1].lengths == (40,) and served.seen[2].cached == (0, 32)


def test_a_preempted_sequence_finds_its_own_blocks_again() -> None:
    """What it recomputes is its last, partly filled block."""
    requests = [request("a", 30, 30), request("b", 30, 30)]
    cached, plain = (serve(continuous(7, 16, 4, prefix_cache=on), requests) for on in (True, False))
    assert cached.total("preempted") == plain.total("preempted") == 1
    assert plain.total("recomputed_tokens") > 16 > cached.total("recomputed_tokens")
    (resumed,) = (seen for seen in cached.seen if seen.resumed)
    assert resumed.cached[0] % 16 == 0 and 0 < resumed.tokens <= 17


def test_the_tail_of_a_freed_prompt_is_evicted_before_its_head() -> None:
    """A public report: blocks of 4, three usable; a one-block stranger leaves the first two to be found again."""
    text = (("A", 12),)
    served = serve(continuous(3, 4), [request("A", text, 1), request("B", 4, 1, 2.0), request("C", text, 1, 4.0)])
    assert served.requests["C"]["cached_tokens"] == 8


def test_output_is_found_by_a_prompt_that_continues_it() -> None:
    """The blocks of generated tokens are published too: the cache holds the sequence, not the prompt."""
    policy = continuous(40, 4)
    stepper = Stepper(policy)
    (a,) = arrive(stepper, request("a", 6, 8))
    for _ in range(8):
        tick(stepper)
    assert not stepper.live
    assert len(policy.blocks.hit(Sequence("b", a.tokens, 2))) == 3  # 13 of the 14 tokens were computed


@pytest.mark.parametrize("at_once", [0, 5])
def test_output_is_found_while_it_still_grows(at_once: int) -> None:
    """Also where the steps were decided together. (Mutation tried: blocks that decode fills are published at the end
    only.)"""
    policy = continuous(40, 4)
    stepper = Stepper(policy)
    (a,) = arrive(stepper, request("a", 6, 30))
    tick(stepper)
    step = stepper.schedule(0.0).step
    assert stepper.horizon(step) >= at_once
    stepper.extend(step, at_once)
    stepper.commit(step, EmulatedSample(step.sampling, 1 + at_once), 1 + at_once)
    for _ in range(5 - at_once):
        tick(stepper)
    assert (a.num_tokens, a.computed) == (13, 12) and a in policy.running
    assert len(policy.blocks.hit(Sequence("b", a.tokens, 2))) == 3


def test_with_the_cache_off_nothing_is_asked_or_found() -> None:
    served = serve(continuous(40, 16, prefix_cache=False), [with_system("a", 20, 3), with_system("b", 20, 3, 1.0)])
    assert (served.total("prefix_queries"), served.total("cached_tokens")) == (0, 0)
    assert served.total("prefill_tokens") == 104


# Who leaves


def test_an_abort_frees_the_seat_and_the_blocks() -> None:
    policy = continuous(9, 4, 2)
    stepper = Stepper(policy)
    a, b, c = arrive(stepper, request("a", 9, 9), request("b", 9, 9), request("c", 9, 9))
    tick(stepper)
    stepper.abort(a)
    assert policy.pool.used == 3 and list(policy.running) == [b]
    step = tick(stepper)
    assert [chunk.sequence for chunk in step.forwards[0].chunks] == [c] and policy.pool.violations([b, c]) == []


def test_an_abort_in_the_middle_of_a_prefill_keeps_what_was_computed_findable() -> None:
    policy = continuous(20, 4, 2, 8)
    stepper = Stepper(policy)
    (a,) = arrive(stepper, request("a", (("t", 20),), 9))
    tick(stepper)
    stepper.abort(a)
    assert policy.pool.used == 0 and not policy.prefilling
    (again,) = arrive(stepper, request("again", (("t", 20),), 9))
    tick(stepper)
    assert again.cached == 8


def test_an_abort_frees_the_way_for_who_waited_on_memory() -> None:
    policy = continuous(4, 4, 4, prefix_cache=False)
    stepper = Stepper(policy)
    a, b = arrive(stepper, request("a", 12, 3), request("b", 8, 3))
    assert [tick(stepper).gauges.waiting, tick(stepper).gauges.waiting] == [1, 1]
    stepper.abort(a)
    assert tick(stepper).admitted == [b]


def test_who_leaves_and_comes_back_within_a_tick_is_given_one_block() -> None:
    """A sequence preempted and admitted again one tick later is noted twice in the calendar of blocks. (Mutation tried:
    given a block for each note, this run asks for more blocks than there are.)"""
    lengths = ((12, 6), (2, 11), (4, 14), (5, 16))
    requests = [request(f"r{place}", prompt, output) for place, (prompt, output) in enumerate(lengths)]
    policy = continuous(seats=4, blocks=11, batching="prefill_first", prefix_cache=False)
    served = serve(policy, requests, Spanning())
    assert served.outcome == "completed" and all(row["status"] == "finished" for row in served.requests.values())
