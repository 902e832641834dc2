"""The laws of scheduling on random small workloads, for every policy there is and all of its options."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

from arcsim.engine import loop as loop_module
from arcsim.engine.backend import Backend
from arcsim.policies.base import Chunk, Policy, Step
from arcsim.policies.find import known_policies
from arcsim.policies.tokens import RunKey
from arcsim.workloads.arrival import Arrival

from .drawing import built, closed_loops, stable, workloads
from .serving import Served, Spanning, Watching, serve

KNOWN = known_policies()


@pytest.fixture(autouse=True, scope="module")
def impatience() -> Iterator[None]:
    """A policy that thrashes is to fail soon, not after 100,000 steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_module, "THRASHING", 500)
        yield


@pytest.mark.parametrize("name", KNOWN)
@stable(120)
@given(st.data())
def test_every_request_is_accounted_for_and_has_its_output(name: str, data: st.DataObject) -> None:
    """With the audit on, pools that force preemption, shared beginnings, ties and early ends. (Mutations tried, each
    breaks a law here: nothing is freed on preemption, a hit of the whole prompt, a horizon one step too long, a stale
    end calendar.)"""
    policy = data.draw(built(KNOWN[name]))
    requests, answer = data.draw(workloads()), data.draw(closed_loops())
    backend: Backend = data.draw(st.sampled_from([Watching, Spanning]))()
    served = serve(policy, requests, backend, answer=answer.session())
    faulty = served.outcome == "engine fault" and getattr(policy.options, "starvation_bug", False)
    faulty |= served.outcome == "stalled" and "door" in policy.exempt
    assert served.outcome == "completed" or faulty, served.loop.report
    check_steps(served, policy)
    for row in served.requests.values():
        asked = {request.id: request for request in (*requests, *answer.all)}[row["id"]]
        check_request(row, asked, faulty, longest(policy))
    if not faulty:
        assert policy.ledger is None or policy.ledger.free == policy.ledger.usable


def longest(policy: Policy) -> int:
    """Most tokens of prompt and output; SGLang keeps two of its context free."""
    return (policy.engine.max_model_len or sys.maxsize) - 2 * (policy.log_style == "sglang")


def check_request(row: Mapping[str, Any], asked: Arrival, faulty: bool, longest: int) -> None:
    times = row["token_times"]
    assert len(times) == row["output_tokens"] and times == sorted(times)
    assert row["arrival"] == pytest.approx(asked.time, abs=1e-9)
    if row["status"] == "finished":
        assert row["output_tokens"] == max(1, min(asked.output, asked.max_tokens, longest - asked.prompt_tokens))
        assert row["arrival"] <= row["first_scheduled"] < row["first_token"] == times[0]
        assert row["finish"] == times[-1] and 0 <= row["cached_tokens"] < asked.prompt_tokens
    else:
        assert (row["status"] == "rejected" and row["reason"]) or (row["status"] == "unfinished" and faulty)


def check_steps(served: Served, policy: Policy) -> None:
    """What the audit does not look at: the trace agrees with itself."""
    run, rows = served.run, list(served.requests.values())
    for column, total in {
        "sampled_tokens": sum(row["output_tokens"] for row in rows),
        "preempted": sum(row["preemptions"] for row in rows),
        "recomputed_tokens": sum(row["recomputed_tokens"] for row in rows),
        "finished": sum(row["status"] == "finished" for row in rows),
    }.items():
        assert served.total(column) == total, column
    tokens = run.column("prefill_tokens") + run.column("decode_tokens")
    assert (tokens <= (policy.engine.max_num_batched_tokens or tokens.sum())).all()
    seats = len(rows) if "seats" in policy.exempt else policy.engine.max_num_seqs or len(rows)
    assert (run.column("forward_width") <= seats).all()
    bounded = policy.ledger is not None and policy.ledger.capacity is not None
    assert not bounded or (run.column("kv_used") <= run.column("kv_total")).all()
    assert (run.column("padded_tokens") >= run.column("prefill_tokens")).all()
    ahead = 2 if policy.overlap else 1  # a step is scheduled when the one so far ahead of it has ended
    assert (run.column("t_start")[ahead:] >= run.column("t_end")[:-ahead]).all()


@pytest.mark.parametrize("name", KNOWN)
@stable(60)
@given(st.data())
def test_what_is_computed_is_what_is_needed(name: str, data: st.DataObject) -> None:
    """Without shared beginnings, each token but the last of an output is computed once, and what was lost again. With
    by_len the engine skips some that it never computed: its fault, and the one exception."""
    policy = data.draw(built(KNOWN[name]))
    served = serve(policy, data.draw(workloads(shared=st.just(False))))
    rows = [row for row in served.requests.values() if row["status"] == "finished"]
    if served.outcome != "completed" or len(rows) < len(served.requests):
        return
    computed = served.total("prefill_tokens") + served.total("decode_tokens") - served.total("recomputed_tokens")
    computed -= served.total("wasted_tokens")  # of rows in flight when their output ended
    needed = sum(row["prompt_tokens"] + row["output_tokens"] - 1 for row in rows)
    assert computed == needed or (computed < needed and getattr(policy.options, "caching", "") == "by_len")


class Remembering(Watching):
    """Notes every beginning that was computed, and the hits of what was not. `early`: what a step computes may be hit
    in that step."""

    def __init__(self, early: bool) -> None:
        super().__init__()
        self.early = early
        self.computed: set[RunKey] = set()
        self.poisoned: list[str] = []

    def launch(self, step: Step) -> None:
        chunks = [chunk for forward in step.forwards for chunk in forward.all_chunks()]
        if self.early:
            self._compute(chunks)
        self.poisoned += [f"{chunk.sequence!r} hit {chunk.cached}" for chunk in chunks if not self._known(chunk)]
        self._compute(chunks)
        super().launch(step)

    def _compute(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:  # what is in flight gets its name a step later
            tokens, first = chunk.sequence.tokens, max(chunk.start - 1, 1)
            self.computed.update(tokens.key(0, end) for end in range(first, min(chunk.end, len(tokens)) + 1))

    def _known(self, chunk: Chunk) -> bool:
        return not chunk.cached or chunk.sequence.tokens.key(0, chunk.cached) in self.computed


@pytest.mark.parametrize("name", KNOWN)
@stable(60)
@given(st.data())
def test_what_is_found_was_computed_before(name: str, data: st.DataObject) -> None:
    """In an earlier step, under the very same tokens; vLLM gives out blocks of the step itself, which its kernels write
    before they read. by_len is the engine's fault of finding what was not.
    (Mutation tried: blocks published when they are given out.)"""
    policy, backend = data.draw(built(KNOWN[name])), Remembering(name == "vllm")
    served = serve(policy, data.draw(workloads(shared=st.just(True))), backend)
    assert not backend.poisoned or getattr(policy.options, "caching", "") == "by_len"
    assert served.total("cached_tokens") == sum(sum(seen.cached) for seen in backend.seen)
