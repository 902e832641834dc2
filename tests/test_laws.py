"""The laws of scheduling on random small workloads, for every policy there is and all of its options."""

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
    assert served.outcome == "completed" or faulty, served.loop.report
    check_steps(served, policy)
    for row in served.requests.values():
        check_request(row, {request.id: request for request in (*requests, *answer.all)}[row["id"]], faulty)
    if not faulty:
        assert policy.ledger is None or policy.ledger.free == policy.ledger.usable


def check_request(row: Mapping[str, Any], asked: Arrival, faulty: bool) -> None:
    times = row["token_times"]
    assert len(times) == row["output_tokens"] and times == sorted(times)
    assert row["arrival"] == pytest.approx(asked.time, abs=1e-9)
    if row["status"] == "finished":
        assert row["output_tokens"] == max(1, min(asked.output, asked.max_tokens))
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
    assert (run.column("forward_width") <= (policy.engine.max_num_seqs or len(rows))).all()
    assert (run.column("kv_used") <= run.column("kv_total")).all()
    assert (run.column("padded_tokens") >= run.column("prefill_tokens")).all()
    assert (run.column("t_start")[1:] >= run.column("t_end")[:-1]).all()


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
    needed = sum(row["prompt_tokens"] + row["output_tokens"] - 1 for row in rows)
    assert computed == needed or (computed < needed and getattr(policy.options, "caching", "") == "by_len")


class Remembering(Watching):
    """Notes every beginning that was computed, and the hits of what was not."""

    def __init__(self) -> None:
        super().__init__()
        self.computed: set[RunKey] = set()
        self.poisoned: list[str] = []

    def launch(self, step: Step) -> None:
        chunks = [chunk for forward in step.forwards for chunk in forward.all_chunks()]
        self.poisoned += [f"{chunk.sequence!r} hit {chunk.cached}" for chunk in chunks if not self._known(chunk)]
        for chunk in chunks:
            tokens = chunk.sequence.tokens
            self.computed.update(tokens.key(0, end) for end in range(chunk.start + 1, chunk.end + 1))
        super().launch(step)

    def _known(self, chunk: Chunk) -> bool:
        return not chunk.cached or chunk.sequence.tokens.key(0, chunk.cached) in self.computed


@pytest.mark.parametrize("name", KNOWN)
@stable(60)
@given(st.data())
def test_what_is_found_was_computed_before(name: str, data: st.DataObject) -> None:
    """In an earlier step, under the very same tokens. by_len is the engine's fault of finding what was not.
    (Mutation tried: blocks published when they are given out.)"""
    policy, backend = data.draw(built(KNOWN[name])), Remembering()
    served = serve(policy, data.draw(workloads(shared=st.just(True))), backend)
    assert not backend.poisoned or getattr(policy.options, "caching", "") == "by_len"
    assert served.total("cached_tokens") == sum(sum(seen.cached) for seen in backend.seen)
