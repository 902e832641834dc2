"""What the dense scheduler does to the batch: rotation, coalescing, catching up, re-prefill, zombies, drafts.

Mutations tried, and what catches each: the payback condition turned round, losers that lose their KV (the recomputed
tokens of B and C), urgency that never rises (rotation), zombies counted as output (the wasted tokens), drafts of which
all are taken (the surplus), a law that takes drafts for granted (the refusal).
"""

from typing import Any

import numpy as np
import pytest

from arcsim.engine.audit import Audit
from arcsim.engine.ends import Ends
from arcsim.engine.errors import LawBroken
from arcsim.models.shape import HERE, load_model
from arcsim.policies.base import Chunk, EngineConfig, Forward, Gauges, Sequence, Step
from arcsim.policies.length_buckets import Bucket, Coalescing
from arcsim.policies.mistralrs_dense import MistralrsDense, MistralrsDenseOptions
from arcsim.policies.speculation import Speculation

from .serving import Served, continuous, request, serve


def dense(seats: int = 64, **options: Any) -> MistralrsDense:
    return MistralrsDense(EngineConfig(max_num_seqs=seats), MistralrsDenseOptions(**options))


def spread(count: int) -> list[int]:
    return [round(length) for length in np.linspace(50, 500, count)]


def run(policy: MistralrsDense, lengths: list[int], output: int = 64) -> Served:
    return serve(policy, [request(f"r{index}", length, output) for index, length in enumerate(lengths)])


@pytest.mark.parametrize("lengths", [[100 + 64 * index for index in range(8)], spread(8), spread(32)])
@pytest.mark.parametrize("options", [{}, {"version": "0.9.5"}, {"choice": "coalesce"}])
def test_one_runs_and_the_others_wait(lengths: list[int], options: dict[str, Any]) -> None:
    """At 64 apart (8), and at 32 distinct lengths, nothing ever merges: 1 running at every step, and B-1 waiting until
    the first has finished. Neither the fork's rule nor that of 0.9.5 helps: (B-1) x gap is more than 256."""
    served = run(dense(**options), lengths)
    running, waiting = served.ints("running"), served.ints("waiting")
    assert set(running) == set(served.ints("forward_width")) == {1}
    first = next(step for step, finished in enumerate(served.ints("finished")) if finished)
    assert set(waiting[: first + 1]) == {len(lengths) - 1}


@pytest.mark.parametrize(("count", "steps", "reprefill"), [(8, 512, 3480), (32, 2048, 13_734)])
def test_prefilling_everybody_again(count: int, steps: int, reprefill: int) -> None:
    """Whenever a sequence ends while nobody else is running, 0.9.0 prefills all others again from the start; 0.9.5 does
    not. Between the two there was a version without zombies."""
    again = run(dense(zombies=False), spread(count))
    never = run(dense(version="0.9.5"), spread(count))
    assert (len(again.run.steps), again.total("reprefill_tokens")) == (steps, reprefill)
    assert again.total("wasted_tokens") == 0
    assert (len(never.run.steps), never.total("reprefill_tokens")) == (steps, 0)
    assert again.total("preempted") == 0


def test_worked_example() -> None:
    """A5 first, B9, C9 and D14 before the second step, three tokens each: the real 0.9.0's steps, one of them twice."""
    requests = [request("A", 5, 3), request("B", 9, 3, 0.5), request("C", 9, 3, 0.5), request("D", 14, 3, 0.5)]
    served = serve(dense(16), requests)
    ran = [seen.prefill + seen.decode for seen in served.seen]
    assert [" ".join(row) for row in ran] == ["A5", "B9 C9", "B10 C10", "B11 C11", "A6", "D14", "D15", "A7", "D16"]
    assert [seen.gauges for seen in served.seen] == [
        (1, 0), (2, 2), (2, 2), (2, 2), (1, 1), (1, 1), (1, 1), (1, 1), (1, 0)]
    assert served.mean("running") == pytest.approx(12 / 9)
    assert served.total("reprefill_tokens") == 22


def test_coalescing_merges_two_cohorts() -> None:
    """32 of length 100 and 32 of 102 alternate for ever, 32 running; the fork's rule lets the shorter ones catch up two
    steps later, and then all 64 run. So does 0.9.5."""
    lengths = [100] * 32 + [102] * 32
    each: list[dict[str, Any]] = [{}, {"choice": "coalesce"}, {"version": "0.9.5"}]
    greedy, coalesced, caught_up = (run(dense(**options), lengths) for options in each)
    assert greedy.mean("running") == 32 and len(greedy.run.steps) == 128
    assert coalesced.mean("running") == pytest.approx(62.06, abs=0.01)
    assert coalesced.ints("running")[:3] == [32, 32, 64] and len(coalesced.run.steps) == 66
    assert caught_up.mean("running") == pytest.approx(61.13, abs=0.01)


@pytest.mark.parametrize(("late", "gap", "taken"), [(1, 36, True), (1, 37, False), (2, 85, True), (2, 86, False)])
def test_when_coalescing_pays(late: int, gap: int, taken: bool) -> None:
    """Taken if (others x gap) <= (members x 256): 7 x 36 = 252 of 256, and 6 x 85 = 510 of 512."""
    members = [Sequence(f"q{index}", range(200 - gap if index < late else 200), 8) for index in range(8)]
    short, long = Bucket(200 - gap, members=members[:late]), Bucket(200, members=members[late:])
    assert (Coalescing().choose([long, short], lambda _: 1.0) is short) == taken


def test_coalescing_needs_a_bucket_of_its_kind() -> None:
    """The shortest never merges into a bucket that is ragged where it is not."""
    members = [Sequence(f"q{index}", range(10 + index), 8) for index in range(3)]
    short, long = Bucket(10, members=members[:1]), Bucket(11, ragged=True, members=members[1:])
    assert Coalescing().choose([long, short], lambda _: 1.0) is long


def test_ragged_admission() -> None:
    """Granted, all decoding sequences share one bucket; prompts still go by their length. Refused, it says why."""
    granted, refused = dense(ragged_admission="granted"), dense(refusal="latent attention pages")
    assert "granted" in granted.notes()[0] and "refused, latent attention pages" in refused.notes()[0]
    served = run(granted, spread(8))
    assert max(served.ints("decode_seqs")) == 8 and max(served.ints("prefill_seqs")) == 1


def test_two_forwards_in_one_step() -> None:
    """A prompt as long as a decoding sequence is in its bucket: its step runs the decodes, then the prompts."""
    served = serve(dense(), [request("A", 4, 4), request("B", 5, 4, 0.5)])
    assert (served.seen[1].prefill, served.seen[1].decode) == (("B5",), ("A5",))
    row = served.run.steps.to_pylist()[1]
    assert row["forward_widths"] == [1, 1] and row["forward_width"] == row["running"] == 2


def test_zombies_decode_past_their_end() -> None:
    """What ends in a prompt step decodes once more where others are to be served; its token is nobody's output."""
    requests = [request("A", 5, 1), request("B", 6, 4, 0.5), request("C", 6, 4, 0.5)]
    dead, alive = serve(dense(zombies=False), requests), serve(dense(), requests)
    assert dead.total("wasted_tokens") == 0 and alive.total("wasted_tokens") == 1
    for served in (dead, alive):
        assert {id: row["output_tokens"] for id, row in served.requests.items()} == {"A": 1, "B": 4, "C": 4}


def test_old_version_oversteps_its_seats() -> None:
    """0.9.0 starts everybody at once where nobody runs, whatever max_num_seqs says: it declares the law it breaks."""
    old, new = dense(2), dense(2, version="0.9.5")
    assert max(run(old, [50] * 5).ints("running")) == 5 and old.exempt == {"seats"}
    assert max(run(new, [50] * 5).ints("running")) == 2 and not new.exempt


def test_losers_keep_their_kv() -> None:
    """Nobody is preempted: who waits has its cache, and nothing is computed twice (0.9.5)."""
    policy = dense(version="0.9.5")
    served = run(policy, [10, 30, 90], output=5)
    assert served.total("recomputed_tokens") == served.total("preempted") == 0
    assert max(served.ints("kv_used")) > 10 + 30 + 90 and policy.cache.used == 0


# Speculative decoding


@pytest.mark.parametrize(("acceptance", "steps"), [(0.0, 64), (1.0, 17)])
def test_drafts_that_are_all_wrong_or_right(acceptance: float, steps: int) -> None:
    """Three drafts a row: with none accepted a token a step, with all four (one prompt step, 63 / 4 rounded up)."""
    served = run(dense(version="0.9.5", speculative=Speculation(tokens=3, acceptance=acceptance)), [100] * 4)
    assert len(served.run.steps) == steps
    assert served.total("sampled_tokens") == 4 * 64
    assert served.total("decode_tokens") > 4 * 63 or acceptance == 1.0


def test_acceptance_is_seeded_and_has_its_mean() -> None:
    """A row yields 1 + p + p^2 + p^3 tokens on average, the same ones whoever shares its step."""
    speculation = Speculation(tokens=3, acceptance=0.6)
    alone = [run(dense(version="0.9.5", speculative=speculation), [100], 4000) for _ in range(2)]
    assert len(alone[0].run.steps) == len(alone[1].run.steps)
    mean = 4000 / len(alone[0].run.steps)
    assert mean == pytest.approx(1 + 0.6 + 0.36 + 0.216, rel=0.05)
    other = run(dense(version="0.9.5", speculative=Speculation(tokens=3, acceptance=0.6, seed=1)), [100], 4000)
    assert len(other.run.steps) != len(alone[0].run.steps)


def test_accepted_drafts_scatter_a_cohort() -> None:
    """Rows that accept different numbers have different lengths, and stop sharing steps: half of the drafts right is
    hardly better than none."""
    half = run(dense(version="0.9.5", speculative=Speculation(tokens=3, acceptance=0.5)), [100] * 4)
    assert half.mean("forward_width") < 3 and max(half.ints("forward_width")) == 4


def test_an_output_ends_among_its_drafts() -> None:
    """The output is shorter than max_tokens: what was accepted beyond its end is wasted, and no output has it."""
    speculation = Speculation(tokens=3, acceptance=1.0)
    served = serve(dense(version="0.9.5", speculative=speculation), [request("A", 10, 6, max_tokens=20)])
    row = served.requests["A"]
    assert row["output_tokens"] == 6 == len(row["token_times"])
    assert (served.total("sampled_tokens"), served.total("wasted_tokens")) == (6, 3)
    assert served.ints("sampled_tokens") == [1, 4, 1]


def test_one_token_a_row_is_a_law() -> None:
    """A row with drafts, and one of two known tokens, break it where the policy does not speculate."""
    policy = continuous(100)
    audit = Audit(policy, Ends())
    sequence = Sequence("A", range(4), 8)
    audit.arrive(sequence, None)
    sequence.block_table = [0, 1, 2, 3]
    for row in (Chunk(sequence, 3, 1, decode=True, drafts=2), Chunk(sequence, 2, 2, decode=True)):
        with pytest.raises(LawBroken, match="law rows"):
            audit.decide(Step(Gauges(1, 0), [Forward([row])]), 0)


# Models that cannot page


def test_a_model_that_cannot_page(tmp_path: Any) -> None:
    """The key of the preset; without it a model can."""
    plain = (HERE / "qwen2.5-0.5b.json").read_text()
    (tmp_path / "config.json").write_text(plain.replace("{", '{"supports_paged_attention": false,', 1))
    assert not load_model(str(tmp_path)).supports_paged_attention
    assert load_model("qwen2.5-0.5b").supports_paged_attention
