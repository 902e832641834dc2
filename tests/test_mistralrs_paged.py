"""mistral.rs's paged scheduler: its two legs, victims, cache and starvation rule."""

from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given, strategies as st

from arcsim.engine.stepper import Stepper
from arcsim.policies.base import Sequence, Step
from arcsim.policies.mistralrs_paged import MistralrsPaged

from .drawing import stable
from .serving import Served, arrive, of_lengths, paged, request, sequence_of, serve, tick

FREE: dict[str, Any] = {"prefill": "length_rule", "caching": "none"}
"""Prompts of any length share a step, so that a batch of any lengths can be brought to decode."""


def ids(sequences: Collection[Sequence]) -> list[str]:
    return [sequence.id for sequence in sequences]


def decoding(decode: str, lengths: Collection[int], **options: Any) -> tuple[MistralrsPaged, list[Sequence], Step]:
    """All prompts are prefilled in one step; then the first decode step is scheduled, and stays so."""
    policy = paged(20_000, 4, 128, decode=decode, **{**FREE, **options})
    stepper = Stepper(policy)
    sequences = arrive(stepper, *of_lengths(lengths, 9))
    assert tick(stepper).totals.width == len(lengths)
    assert all(sequence.block_table for sequence in sequences)
    return policy, sequences, stepper.schedule(0.0).step


# The decode leg


@pytest.mark.parametrize("batch", [8, 32, 128])
def test_ragged_decodes_every_length_at_once(batch: int) -> None:
    """On the lengths of which the next test decodes one. (Mutation tried: the ragged leg buckets anyway.)"""
    policy, sequences, step = decoding("ragged", range(10, 10 + batch))
    assert step.totals.decode_seqs == step.totals.width == batch and not step.preempted
    assert step.gauges.running == batch and not policy.waiting
    assert all(len(sequence.block_table) == -(-(sequence.num_tokens + 1) // 4) for sequence in sequences)


@pytest.mark.parametrize("batch", [8, 32, 128])
def test_bucketed_decodes_the_shortest_and_the_rest_hold_nothing(batch: int) -> None:
    """That only one decodes proves that the lengths differ, which the test above rests on. (Mutations tried: nothing
    is freed on preemption; losing buckets go back shortest first.)"""
    policy, sequences, step = decoding("bucketed", range(10, 10 + batch))
    assert [chunk.sequence for chunk in step.forwards[0].all_chunks()] == sequences[:1]
    assert len(step.preempted) == batch - 1 and {reason for _, reason in step.preempted} == {"another length"}
    assert all(sequence.block_table == [] and sequence.computed == 0 for sequence in sequences[1:])
    assert policy.pool.used == len(sequences[0].block_table) and policy.pool.violations(sequences) == []
    assert list(policy.waiting) == sequences[1:]  # the shortest of them in front
    assert (step.gauges.running, step.gauges.waiting) == (1, batch - 1)


@pytest.mark.parametrize("decode", ["ragged", "bucketed"])
@pytest.mark.parametrize("prefill", ["bucketed", "length_rule"])
@pytest.mark.parametrize("caching", ["none", "by_len", "by_computed"])
def test_a_single_request_is_untouched_by_any_rule(decode: str, prefill: str, caching: str) -> None:
    policy = paged(decode=decode, prefill=prefill, caching=caching)
    served = serve(policy, [request("a", 9, 6)])
    assert served.ints("forward_width") == [1] * 6 and served.total("preempted") == 0
    assert served.ints("running") == [1] * 6 and served.total("prefill_tokens") == 9


def test_equal_lengths_share_a_bucket() -> None:
    served = serve(paged(decode="bucketed", caching="none"), of_lengths([7] * 6, 5))
    assert served.ints("forward_width") == [6] * 5 and served.total("preempted") == 0


def test_lengths_that_meet_merge() -> None:
    """A has come to 9 tokens when B's prompt of 8 and its first token make 9 too."""
    served = serve(paged(decode="bucketed", caching="none"), [request("A", 6, 9), request("B", 8, 9, 3.0)])
    assert [seen.decode for seen in served.seen[1:6]] == [("A7",), ("A8",), (), ("B9", "A9"), ("B10", "A10")]


# The prompt leg


def test_while_a_prompt_can_run_nobody_decodes() -> None:
    requests = [request("a", 8, 9)] + [request(f"p{i}", 8, 1, 1.0 + i) for i in range(4)]
    served = serve(paged(decode="ragged", caching="none"), requests)
    assert [seen.decode for seen in served.seen[1:5]] == [()] * 4
    assert served.ints("running")[1:5] == [2] * 4  # the idle decoder counts, though it is in no forward
    assert served.ints("forward_width")[1:5] == [1] * 4


def test_a_prompt_step_gives_a_token() -> None:
    """So a sequence that is prefilled again still moves on."""
    served = serve(paged(decode="bucketed", caching="none"), of_lengths([5, 9], 3))
    assert served.total("sampled_tokens") == 6 and served.requests["B"]["token_times"] == [2.0, 4.0, 6.0]


def test_prompts_of_one_length_share_a_step_and_the_others_go_back() -> None:
    """They have not run, so nothing is computed twice."""
    served = serve(paged(caching="none"), of_lengths([9, 5, 9, 7], 2))
    assert [seen.prefill for seen in served.seen[:3]] == [("B5",), ("D7",), ("A9", "C9")]
    assert served.seen[0].preempted == ("C", "A", "D")
    assert served.total("recomputed_tokens") == served.total("reprefill_tokens") == 0


def test_the_length_rule_lets_prompts_of_any_length_share_a_step() -> None:
    served = serve(paged(prefill="length_rule"), of_lengths([9, 5, 9, 7], 2))
    assert served.seen[0].prefill == ("A9", "B5", "C9", "D7") and served.ints("padded_tokens")[0] == 4 * 9


def test_one_prefix_hit_makes_the_whole_batch_match() -> None:
    """B hits two blocks; then all prompts of that step are held to one effective length, those without a hit too."""
    requests = [request("A", (("t", 9),), 1), request("B", (("t", 12),), 1, 5.0), request("C", 6, 1, 5.0),
                request("D", 4, 1, 5.0)]
    served = serve(paged(prefill="length_rule"), requests)
    assert [seen.prefill for seen in served.seen] == [("A9",), ("B12", "D4"), ("C6",)]
    assert served.seen[1].cached == (8, 0) and served.ints("padded_tokens")[1] == 8


def test_a_prompt_counts_what_lies_beyond_its_hit() -> None:
    """12 tokens with a hit of 8 go before 5 without one."""
    requests = [request("A", (("t", 9),), 1), request("B", (("t", 12),), 1, 5.0), request("C", 5, 1, 5.0)]
    served = serve(paged(prefill="bucketed"), requests)
    assert [seen.prefill for seen in served.seen[1:]] == [("B12",), ("C5",)]


def test_a_sequence_just_prefilled_still_counts_without_its_hit() -> None:
    """B of 13 tokens with a hit of 8 decodes as one of 5, beside A, which really has 5: a ragged batch."""
    policy = paged(decode="bucketed", prefill="bucketed")
    stepper = Stepper(policy)
    arrive(stepper, request("T", (("t", 9),), 1))
    tick(stepper)
    a, b = arrive(stepper, request("A", 4, 9), request("B", (("t", 12),), 9))
    assert tick(stepper).totals.width == 2 and (a.num_tokens, b.num_tokens) == (5, 13)
    step = tick(stepper)
    assert step.totals.decode_seqs == 2 and not step.preempted
    assert [sequence.id for sequence, _ in tick(stepper).preempted] == ["B"]  # now it counts whole


def test_seats_count_the_running() -> None:
    served = serve(paged(seats=2, caching="none", prefill="length_rule"), of_lengths([5, 6, 7], 4))
    assert served.seen[0].admitted == ("A", "B") and max(served.ints("running")) == 2
    assert served.seen[4].admitted == ("C",)


def test_admission_reserves_the_prompt_and_not_the_next_token() -> None:
    served = serve(paged(4, 4, caching="none"), [request("a", 12, 1)])
    assert served.outcome == "completed" and served.ints("kv_used") == [3]


def test_the_null_block_is_not_usable() -> None:
    policy = paged(4, 4)
    assert policy.pool.usable == 3 and policy.pool.allocate(3) == [1, 2, 3]
    with pytest.raises(ValueError, match="engine.num_blocks: 1, but one is the null block: give at least 2"):
        paged(1)


# Memory


@pytest.mark.parametrize(("victim", "loser"), [("oldest", "A"), ("newest", "C")])
def test_the_victim_is_the_oldest_or_the_newest(victim: str, loser: str) -> None:
    """Three of one length on three blocks each need a fourth, and one is free. (Mutation tried: flipped.)"""
    served = serve(paged(8, 4, victim=victim, decode="ragged", caching="none"), of_lengths([8, 8, 8], 3))
    assert served.seen[1].preempted == (loser,)


def test_arrival_decides_who_is_old_and_submission_among_ties() -> None:
    """Not the order of admission: B came first and was admitted last, after a preemption."""
    policy = paged(100, 4, decode="ragged", victim="newest", **FREE)
    stepper = Stepper(policy)
    arrive(stepper, request("late", 8, 9, 2.0), request("early", 8, 9, 1.0), request("tie", 8, 9, 1.0))
    tick(stepper)
    assert ids([chunk.sequence for chunk in tick(stepper).forwards[0].chunks]) == ["early", "tie", "late"]


def test_who_is_granted_a_slot_is_not_a_victim_any_more() -> None:
    """With nobody left behind it, a sequence that finds no block preempts itself."""
    served = serve(paged(10, caching="none", decode="ragged"), of_lengths([5, 9, 9, 14], 8))
    step = served.seen[8]
    assert (step.decode, step.preempted) == (("C16",), ("B",))


def test_a_sequence_that_fills_the_pool_ends_by_preempting_itself() -> None:
    """It writes 12 tokens into three blocks of 4, but a decode asks for one slot more: so the last token comes from a
    prefill."""
    served = serve(paged(4, 4, caching="none"), [request("a", 9, 4)])
    assert served.requests["a"]["status"] == "finished" and served.requests["a"]["preemptions"] == 1
    assert [seen.prefill for seen in served.seen] == [("a9",), (), (), ("a12",)]


@pytest.mark.parametrize(("output", "fits"), [(4, True), (5, False)])
def test_the_door(output: int, fits: bool) -> None:
    reason = paged(4, 4).add(sequence_of(request("a", 9, output)))
    assert reason == (None if fits else "needs 4 blocks of 4 tokens (prompt 9 + max_tokens 5 - 1), the pool has 3")
    assert paged(4, 4, strict_mistralrs=True).add(sequence_of(request("a", 9, output))) is None


# The prefix cache


def test_a_hit_is_counted_at_every_admission_in_requests() -> None:
    requests = [request("A", (("t", 9),), 1), request("B", (("t", 9),), 1, 5.0), request("C", (("u", 9),), 1, 6.0)]
    served = serve(paged(), requests)
    assert served.ints("prefix_queries") == [1, 1, 1] and served.ints("prefix_hits") == [0, 1, 0]
    assert serve(paged(caching="none"), requests).total("prefix_queries") == 0


def test_a_loser_of_the_prompt_leg_leaves_nothing_by_computed_and_all_by_len() -> None:
    """by_len is the engine's fault: it finds blocks that were never written. (Mutation tried: by_computed publishes
    before anything is computed.)"""
    served = {caching: serve(paged(caching=caching), of_lengths([5, 9], 1)) for caching in ("by_computed", "by_len")}
    assert served["by_computed"].seen[1].cached == (0,) and served["by_len"].seen[1].cached == (8,)
    assert served["by_computed"].total("prefill_tokens") == 14 and served["by_len"].total("prefill_tokens") == 6


def test_a_preempted_decoder_finds_its_computed_blocks_again() -> None:
    served = serve(paged(decode="bucketed"), of_lengths([5, 9], 3))
    (again,) = (seen for seen in served.seen if seen.resumed == ("B",) and seen.prefill == ("B10",))
    assert again.cached == (8,) and again.tokens == 2


# The starvation rule


def starving(timeout: int = 64, **options: Any) -> Served:
    """A (20 + 90) grows alone in 14 usable blocks of 8, B (100 + 5) needs 13 and never finds them."""
    policy = paged(15, 8, waiting_timeout=timeout, **{"caching": "none", **options})
    return serve(policy, [request("A", 20, 90), request("B", 100, 5)])


@pytest.mark.parametrize("prefill", ["bucketed", "length_rule"])
@pytest.mark.parametrize("decode", ["ragged", "bucketed"])
def test_with_the_engines_bug_the_victim_is_run_without_blocks(decode: str, prefill: str) -> None:
    """The panic comes in step 65: the pass in which B has failed once more than 64 times. (Mutation tried: the
    counter off by one.)"""
    served = starving(starvation_bug=True, decode=decode, prefill=prefill)
    assert (served.outcome, len(served.run.steps)) == ("engine fault", 64)
    assert served.loop.report == "A is scheduled, but holds no blocks (starvation bug)"
    assert served.requests["A"]["output_tokens"] == 64 and served.requests["B"]["status"] == "unfinished"


def test_a_victim_without_blocks_is_fatal_wherever_it_stands_in_the_batch() -> None:
    """B and C lost their bucket and come back in front of H; then H takes B's place, and B is run behind C. (Mutation
    tried: only the first of the batch is looked at, as if the engine's crash hung on it.)"""
    policy = paged(13, 4, starvation_bug=True, decode="bucketed", waiting_timeout=1, **FREE)
    requests = [*of_lengths([4, 8, 8], 9), request("D", 4, 2), request("H", 28, 1, 1.0)]
    served = serve(policy, requests)
    assert served.loop.report == "B is scheduled, but holds no blocks (starvation bug)"
    assert len(served.run.steps) == 2


def test_the_strict_engine_lets_in_what_never_fits_and_drops_it_after_its_time() -> None:
    """13 usable blocks: the panic comes all the same; without the bug A grows to 105 tokens and is ignored."""
    requests = [request("A", 20, 90), request("B", 100, 5)]
    options: dict[str, Any] = {"caching": "none", "strict_mistralrs": True}
    panic = serve(paged(14, 8, starvation_bug=True, **options), requests)
    assert (panic.outcome, len(panic.run.steps)) == ("engine fault", 64)
    served = serve(paged(14, 8, **options), requests)
    assert served.outcome == "completed" and served.requests["B"]["status"] == "finished"
    row = served.requests["A"]
    assert row["status"] == "rejected" and row["output_tokens"] == 85
    assert row["reason"] == "needs 14 blocks, 13 of 13 are free after 64 passes"
    assert served.total("rejected") == 1 and served.total("sampled_tokens") == 85 + 5


def test_without_the_bug_the_head_takes_the_victims_place() -> None:
    served = starving()
    assert served.outcome == "completed" and served.loop.recorder.events == ["step 64: B waited 64 passes"]
    assert served.seen[64].preempted == ("A",) and served.seen[64].prefill == ("B100",)
    assert [row["status"] for row in served.requests.values()] == ["finished", "finished"]
    assert served.total("preempted") == 1 and served.requests["A"]["recomputed_tokens"] == 83


@pytest.mark.parametrize("timeout", [1, 2, 5])
def test_the_head_may_preempt_in_the_pass_after_its_timeout(timeout: int) -> None:
    served = starving(timeout)
    assert served.loop.recorder.events[0] == f"step {timeout}: B waited {timeout} passes"
    assert served.outcome == "completed"


def test_failures_are_counted_per_head_and_forgotten_when_it_is_let_in() -> None:
    policy = paged(6, 4, caching="none", decode="ragged", waiting_timeout=9)
    stepper = Stepper(policy)
    arrive(stepper, request("a", 8, 4))
    tick(stepper)
    (b,) = arrive(stepper, request("b", 16, 2))
    for failures in (1, 2, 3):
        tick(stepper)
        assert policy._failures == {b: failures}
    assert tick(stepper).admitted == [b] and policy._failures == {}


def test_the_starved_head_may_take_the_place_of_who_was_admitted_in_the_same_pass() -> None:
    """The victim is the last of the running, be it a prompt that has not run: it loses its chunk of this step."""
    served = serve(paged(6, 4, seats=4, caching="none", waiting_timeout=1, prefill="length_rule"),
                   [request("a", 4, 9), request("big", 17, 2), request("c", 4, 3)])
    assert served.outcome == "completed"
    assert sum(row["output_tokens"] for row in served.requests.values()) == 14


def test_a_timeout_of_nothing_would_never_end() -> None:
    """Two heads could take each other's place without end within one pass."""
    with pytest.raises(ValueError, match="waiting_timeout"):
        paged(waiting_timeout=0)


# What the engine's log counts


@pytest.mark.parametrize(("logged", "tokens"), [("by_len", 10 + 1), ("uncomputed", 9 + 1)])
def test_the_engines_log_counts_prompts_as_throughput(logged: str, tokens: int) -> None:
    served = serve(paged(logged_tokens=logged), [request("a", 9, 2)])
    assert served.total("logged_tokens") == tokens and served.total("sampled_tokens") == 2


def test_cached_tokens_count_as_throughput_by_len_only() -> None:
    requests = [request("A", (("t", 9),), 1), request("B", (("t", 12),), 2, 5.0)]
    counts = {logged: serve(paged(logged_tokens=logged), requests).ints("logged_tokens") for logged in (
        "by_len", "uncomputed")}
    assert counts == {"by_len": [1, 13, 1], "uncomputed": [1, 4, 1]}


# Who leaves


def test_an_abort_frees_from_either_queue() -> None:
    policy = paged(100, 4, caching="none", prefill="bucketed")
    stepper = Stepper(policy)
    a, b = arrive(stepper, request("a", 5, 9), request("b", 9, 9))
    tick(stepper)
    assert list(policy.running) == [a] and list(policy.waiting) == [b]
    stepper.abort(a)
    stepper.abort(b)
    assert not policy.running and not policy.waiting and policy.pool.used == 0 and not stepper.live


@stable(40)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=10, unique=True), st.integers(1, 6))
def test_bucketed_and_ragged_give_every_request_its_output(lengths: list[int], output: int) -> None:
    for decode in ("bucketed", "ragged"):
        served = serve(paged(300, 4, decode=decode, caching="none"), of_lengths(lengths, output))
        widths = served.ints("forward_width")
        assert all(row["output_tokens"] == output for row in served.requests.values())
        assert decode == "ragged" or max(widths) == 1  # distinct lengths never meet
