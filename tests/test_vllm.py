"""vLLM's scheduler: what its golden traces cannot show, and random cases against a plain scheduler.

Mutations of the policy that were tried, each with a trace in tests/golden (its beginning) that catches it:
unhashed blocks to the tail of the free queue (a02), or to its front with caching off (a05); a freed chain's head first
(a06); a hit of the whole prompt (e03), or of the prompt without the output (c06); blocks cached when computed instead
of when scheduled (e02), in decode steps too (a06); blocks of output not cached (a04); the last token cached too (a04);
the newest copy of a block served (e11), or no second copy kept (e11); an evicted block still found (c06); blocks
forgotten on abort (g01); a resumed request not looked up (c06); a refused head not looked up again (a06), or only when
blocks are freed (m11). Idle hit blocks not counted (c07); the full-ISL test on the prompt only (c03), with max_tokens
(c02), without hits (e14), never (d01) or always (d02) made; one block kept free for the running (c01) or on admission
(a08); a slot looked ahead for (a04). The watermark with nothing running (d05), for those that run (d04), not for
resumed ones (r12), without the null block (d11), or not in the full-ISL test (m07). Somebody admitted in a preempting
step (c01); victims to the back of the queue (c03); the head skipped (b10). The threshold not with chunking off (b12),
before the hit (b09), on admission only (b08); with chunking off cached tokens counted (m05). Prefills or decodes
first among the running (b08); seats counted by who is scheduled (h02). Priority: the last of the running as the victim
(f04), the last of equals (f06), arrival times ignored (f13), ties by id among victims (f06); a victim in front of the
queue (f08), or left in the step (r06); its tokens not given back (m01, m02); others run on after a self-preemption
(f05); who is behind one that got nothing not passed over (m10); ids compared as numbers (f07), or by submission (f07);
arrival times ignored in the queue (f11). Ended requests freed newest first (a03) or by length (a04); an output not cut
at max_model_len (a09). Asynchronous: run on after the last token is in flight (h01), the token of a preempted request
dropped (h03), a block cached with a token that is not there (h01), not cached when its output ends (h07), joined to
those that decode with a token too few (m13), a stopped request freed a step late (m12); synchronous as asynchronous
(a01) and the other way round (h01).
"""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from arcsim.conform.difference import Difference
from arcsim.conform.vllm import replay
from arcsim.policies.base import EngineConfig
from arcsim.policies.vllm import Vllm

from .drawing import stable
from .plain_vllm import record
from .serving import Spanning, request, serve


def vllm(
    blocks: int = 101, size: int = 4, seats: int = 8, budget: int = 64, *, model_len: int | None = None, **options: Any
) -> Vllm:
    """`blocks` with the null block, as the engine counts."""
    engine = EngineConfig(
        block_size=size, num_blocks=blocks, max_num_seqs=seats, max_num_batched_tokens=budget, max_model_len=model_len,
    )
    return Vllm(engine, Vllm.Options.model_validate(options))


# Random cases against the plain scheduler


SEATS = st.sampled_from([4, 8, 2, 1])


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """Small engines in which blocks run out, with every option."""
    size, longest, seats = draw(st.sampled_from([4, 1, 2, 8])), draw(st.sampled_from([48, 20, 64])), draw(SEATS)
    chunked = draw(st.sampled_from([True, True, True, False]))
    budget = max(seats, draw(st.sampled_from([seats, 12, 20, 64])), 1 if chunked else longest)
    return {
        "block_size": size, "num_gpu_blocks": -(-longest // size) + draw(st.integers(0, 12)), "max_num_seqs": seats,
        "max_num_batched_tokens": budget, "max_model_len": longest, "enable_chunked_prefill": chunked,
        "enable_prefix_caching": draw(st.booleans()), "policy": draw(st.sampled_from(["fcfs", "priority"])),
        "long_prefill_token_threshold": draw(st.sampled_from([0, 0, 3, 7])),
        "scheduler_reserve_full_isl": draw(st.booleans()), "watermark": draw(st.sampled_from([0.0, 0.0, 0.1, 0.4])),
        "async_scheduling": draw(st.booleans()),
    }


@st.composite
def requests(draw: st.DrawFn, longest: int) -> list[dict[str, Any]]:
    """Own prompts, shared beginnings and follow-up turns; ties in arrival and priority; early ends."""
    found: list[dict[str, Any]] = []
    step = 0
    for number in range(draw(st.integers(2, 9))):
        step += draw(st.sampled_from([0, 0, 1, 3]))
        length = draw(st.integers(1, longest - 1))
        tokens = [1000 * number + place for place in range(length)]
        kind = draw(st.sampled_from(["shared", "own", "turn"]))
        if kind == "shared":
            shared = draw(st.integers(0, length))
            tokens[:shared] = range(10**9, 10**9 + shared)
        elif kind == "turn" and found:
            turn = found[draw(st.integers(0, number - 1))]
            output = [turn["output_token_base"] + place for place in range(turn["output_len"])]
            tokens = (turn["prompt_token_ids"] + output + tokens[:3])[:longest - 1]
        output_len = draw(st.sampled_from([1, 4, 9, 30]))
        found.append({
            "id": f"r{number}", "arrival_step": step, "arrival_time": float(draw(st.sampled_from([number, number, 1]))),
            "priority": draw(st.integers(0, 2)), "output_len": output_len, "output_token_base": 10**6 * (number + 1),
            "prompt_token_ids": tokens[:longest - 1], "max_tokens": output_len + draw(st.sampled_from([0, 0, 5])),
        })
    return found


@stable(400)
@given(st.data())
def test_random_cases_are_decided_as_by_the_plain_scheduler(data: st.DataObject) -> None:
    config = data.draw(configs())
    asked = data.draw(requests(config["max_model_len"]))
    leaving = data.draw(st.dictionaries(st.integers(0, len(asked) - 1), st.integers(0, 9), max_size=2))
    aborts = [{"step": asked[n]["arrival_step"] + later, "id": asked[n]["id"]} for n, later in leaving.items()]
    trace = record(config, asked, aborts, most=200)
    for frame in replay(trace):
        difference = Difference.first(frame)
        assert difference is None, f"{difference.place}: {difference.expected} {difference.found}\n{difference.state}"


# At the door and at the start


def test_what_a_server_refuses_is_refused_with_a_reason() -> None:
    served = serve(vllm(21, model_len=48), [request("long", 48, 1), request("fits", 47, 9)])
    assert served.requests["long"]["reason"] == "prompt 48 leaves no room for output in max_model_len 48"
    assert served.requests["fits"]["output_tokens"] == 1  # cut at max_model_len
    served = serve(vllm(6), [request("big", 10, 20)])
    assert served.requests["big"]["reason"].startswith("needs 8 blocks of 4 tokens")
    served = serve(vllm(enable_chunked_prefill=False, budget=16), [request("whole", 17, 1), request("grows", 10, 8)])
    reason = "up to 17 tokens at once, max_num_batched_tokens is 16 and prefill is not chunked"
    assert {row["reason"] for row in served.requests.values()} == {reason}


@pytest.mark.parametrize(("arguments", "message"), [
    ({"budget": 7, "seats": 8}, r"max_num_batched_tokens \(7\) is below engine.max_num_seqs \(8\)"),
    ({"budget": 40, "model_len": 48, "enable_chunked_prefill": False}, r"\(40\) is below engine.max_model_len \(48\)"),
    ({"model_len": 48, "long_prefill_token_threshold": 49}, r"long_prefill_token_threshold \(49\) is above"),
    ({"blocks": 11, "model_len": 48}, r"num_blocks \(11\) cannot hold one sequence .* takes 12 blocks of 4 tokens"),
    ({"blocks": 1}, "one is the null block"),
    ({"watermark": 1.0}, "watermark"),
])
def test_what_a_server_does_not_start_with(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vllm(**arguments)


def test_the_pools_check_forgets_the_null_block_and_the_door_does_not() -> None:
    """12 blocks pass the check for 48 tokens of 4 a block, but 11 are usable: the bare scheduler lets the request in
    that outgrows them, preempts it in favour of nobody, and waits for ever."""
    asked = [request("r", 10, 38)]
    stalled = serve(vllm(12, model_len=48, strict_vllm=True), asked)
    assert stalled.outcome == "stalled" and "r: 45 tokens, 0 computed, holds 0 blocks" in stalled.loop.report
    assert stalled.total("preempted") == 1
    assert serve(vllm(12, model_len=48), asked).requests["r"]["status"] == "rejected"
    assert serve(vllm(13, model_len=48), asked).requests["r"]["output_tokens"] == 38


GIB = 2.0**30


@pytest.mark.parametrize(("given", "options", "device", "memory", "seqs", "tokens"), [
    ({}, {}, "h100", 79 * GIB, 1024, 8192),
    ({}, {}, "NVIDIA A100", 79 * GIB, 256, 2048),
    ({}, {}, "l40s", 44 * GIB, 256, 2048),
    ({}, {}, "", 0.0, 256, 2048),
    ({"max_num_batched_tokens": 128}, {}, "h100", 79 * GIB, 128, 128),
    ({"max_num_seqs": 4, "max_model_len": 100}, {}, "h100", 79 * GIB, 4, 400),
    ({"max_model_len": 32768}, {"enable_chunked_prefill": False}, "h100", 79 * GIB, 1024, 32768),
])
def test_limits_left_out_are_those_of_a_server_on_the_device(
    given: dict[str, int], options: dict[str, Any], device: str, memory: float, seqs: int, tokens: int
) -> None:
    found = given | dict(Vllm.defaults(given, options, device, memory))
    assert (found["max_num_seqs"], found["max_num_batched_tokens"]) == (seqs, tokens)


def test_a_limit_of_null_is_one_left_out() -> None:
    policy = Vllm(EngineConfig(max_num_seqs=None), Vllm.Options.model_validate({}))
    assert (policy.engine.max_num_seqs, policy.engine.max_num_batched_tokens) == (256, 2048)


# Asynchronous or not


def test_asynchronous_is_the_default_and_said() -> None:
    assert vllm().overlap and vllm().notes() == ["async scheduling: on, as a vLLM server has it"]
    assert not vllm(async_scheduling=False).overlap


def test_a_seat_is_held_a_step_longer_when_asynchronous() -> None:
    """Steps of a second: with one seat, `b` starts one (empty) step after the last token of `a` was scheduled."""
    starts = {}
    for asynchronous in (False, True):
        policy = vllm(seats=1, async_scheduling=asynchronous)
        run = serve(policy, [request("a", 4, 3), request("b", 4, 3)]).run
        starts[asynchronous] = (run.column("forward_width").tolist(), run.column("admitted").tolist())
    assert starts[False] == ([1] * 6, [1, 0, 0, 1, 0, 0])
    assert starts[True] == ([1, 1, 1, 0, 1, 1, 1, 0], [1, 0, 0, 0, 1, 0, 0, 0])


def test_a_stop_token_wastes_the_row_in_flight() -> None:
    served = serve(vllm(), [request("a", 4, 3, max_tokens=9)])
    assert served.ints("sampled_tokens") == [1, 1, 1, 0] and served.ints("wasted_tokens") == [0, 0, 0, 1]
    assert served.requests["a"]["token_times"] == [1.0, 2.0, 3.0]
    assert serve(vllm(async_scheduling=False), [request("a", 4, 3, max_tokens=9)]).total("wasted_tokens") == 0


def test_who_was_admitted_in_the_step_in_flight_may_be_preempted() -> None:
    """Before anything is committed; the audit knows what it held."""
    served = serve(vllm(7), [request("a", 12, 5), request("b", 12, 5)])
    assert served.outcome == "completed" and served.ints("preempted")[:2] == [0, 1]
    assert served.requests["b"]["token_times"][0] == 1.0  # its first token was in flight


@pytest.mark.parametrize("asynchronous", [False, True])
def test_most_steps_of_a_long_decode_are_decided_together(asynchronous: bool) -> None:
    backend = Spanning()
    policy = vllm(2001, async_scheduling=asynchronous)
    served = serve(policy, [request("a", 64, 1000), request("b", 9, 900)], backend)
    assert len(served.run.steps) >= 1000 and backend.launches < 20


# Statistics


def test_look_ups_count_once_and_not_for_those_that_come_back() -> None:
    """The engine's hit rate ignores resumed requests. (Mutation tried: counting them gives 17 queries more.)"""
    served = serve(vllm(9, async_scheduling=False), [request("a", 12, 12), request("b", 12, 12)])
    assert served.total("preempted") == served.total("resumed") == 1
    assert served.total("prefix_queries") == 24 and served.total("prefix_hits") == 0


def test_two_equals_do_not_preempt_each_other_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """They came at one instant, with one priority, and do not fit together: the earlier one goes first. The bare
    scheduler takes the first of the running as the victim, in turn."""
    monkeypatch.setattr("arcsim.engine.loop.THRASHING", 200)
    options: dict[str, Any] = {"scheduling_policy": "priority", "scheduler_reserve_full_isl": False,
                               "enable_prefix_caching": False, "long_prefill_token_threshold": 5}
    asked = [request("a", 12, 6), request("b", 12, 6)]
    assert serve(vllm(8, **options), asked).outcome == "completed"
    assert serve(vllm(8, strict_vllm=True, **options), asked).outcome == "stalled"
