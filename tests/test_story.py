"""What became of a request: told from the tables, and checked against what the engine was seen to do."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from arcsim.policies.base import EngineConfig
from arcsim.policies.vllm import Vllm
from arcsim.traces.rows import run_from_rows
from arcsim.traces.story import DECODE, PREEMPTED, PREFILL, QUEUED, WAITED, Part, Stories
from arcsim.traces.worst import Served, described, worst_rows

from .serving import Served as Run, continuous, of_lengths, request, serve


def told(served: Run, id: str) -> list[tuple[str, float, float]]:
    rows = served.run.requests.column("id").to_pylist()
    return [(part.kind, part.start, part.end) for part in Stories(served.run).of(rows.index(id)).parts]


def test_a_request_alone_prefills_and_decodes() -> None:
    served = serve(continuous(), [request("a", 5, 4, 2.5)])
    assert told(served, "a") == [(PREFILL, 2.5, 3.5), (DECODE, 3.5, 6.5)]


def test_one_that_finds_no_seat_is_queued() -> None:
    served = serve(continuous(seats=1), of_lengths([4, 4], 3))
    assert told(served, "B") == [(QUEUED, 0, 3), (PREFILL, 3, 4), (DECODE, 4, 6)]


def test_the_chunks_of_a_prefill_are_the_steps_that_prefilled() -> None:
    served = serve(continuous(seats=1, budget=4), [request("a", 10, 2)])
    story = Stories(served.run).of(0)
    assert [part.kind for part in story.parts] == [PREFILL, DECODE]
    assert story.chunks.tolist() == [0, 1, 2]


@pytest.mark.parametrize("blocks", [12, 14, 17, 20])
def test_pauses_are_where_the_engine_was_seen_to_preempt(blocks: int) -> None:
    """Steps take a second: a sequence preempted in step k and resumed in step j pauses from k to j.

    (Mutation tried: taking the shortest gaps, or the first step that resumed anybody, fails here.)
    """
    served = serve(continuous(blocks, seats=8), of_lengths(range(3, 17, 2), 14))
    assert served.total("preempted") > 0
    for id, row in served.requests.items():
        gone = [float(k) for k, seen in enumerate(served.seen) if id in seen.preempted]
        back = [float(k) for k, seen in enumerate(served.seen) if id in seen.resumed]
        assert len(gone) == len(back) == row["preemptions"]
        if len(gone) == len(merged := _between_tokens(gone, row["token_times"])):
            assert [part[1:] for part in told(served, id) if part[0] == PREEMPTED] == list(zip(gone, back, strict=True))
        else:
            assert len([part for part in told(served, id) if part[0] == PREEMPTED]) == len(merged)


def _between_tokens(gone: list[float], tokens: list[float]) -> set[int]:
    """Which gaps between tokens they fall in."""
    return {int(np.searchsorted(tokens, moment, side="right")) for moment in gone}


@pytest.mark.parametrize("blocks", [12, 17, 200])
def test_parts_follow_each_other_from_arrival_to_finish(blocks: int) -> None:
    served = serve(continuous(blocks, seats=4, budget=12), of_lengths(range(3, 17, 2), 9))
    for id, row in served.requests.items():
        parts = told(served, id)
        assert parts[0][1] == row["arrival"] and parts[-1][2] == row["finish"]
        assert all(before[2] == after[1] for before, after in pairwise(parts))


def test_what_never_ran_or_never_ended_is_told_to_the_end_of_the_run() -> None:
    steps = [{"t_start": i, "t_end": i + 1, "preempted": int(i == 3), "prefill_tokens": int(i == 0)} for i in range(6)]
    requests: list[dict[str, Any]] = [
        {"id": "waits", "arrival": 1.0, "status": "unfinished"},
        {"id": "gone", "arrival": 1.0, "status": "rejected"},
        {"id": "lost", "arrival": 0.0, "first_scheduled": 0.0, "first_token": 1.0, "token_times": [1.0, 2.0, 3.0],
         "output_tokens": 3, "preemptions": 1, "status": "unfinished"},
    ]
    stories = Stories(run_from_rows(steps, requests))
    assert stories.of(0).parts == (Part(QUEUED, 1, 6),) and stories.of(1).parts == ()
    assert stories.of(2).parts == (Part(PREFILL, 0, 1), Part(DECODE, 1, 3), Part(PREEMPTED, 3, 6))


def test_what_a_load_generator_saw_is_told_from_outside() -> None:
    """Without steps it is not known when a request began to run."""
    requests: list[dict[str, Any]] = [
        {"arrival": 1.0, "first_token": 3.0, "finish": 9.0, "output_tokens": 4},
        {"arrival": 2.0, "first_token": 4.0, "token_times": [4.0, 5.0], "output_tokens": 2, "status": "aborted"},
        {"arrival": 2.0, "status": "unfinished"},
    ]
    stories = Stories(run_from_rows([], requests))
    assert stories.of(0).parts == (Part(WAITED, 1, 3), Part(DECODE, 3, 9))
    assert stories.of(1).parts == (Part(WAITED, 2, 4), Part(DECODE, 4, 5)) and stories.of(2).parts[0].end == 9


def test_a_run_without_steps_has_stories() -> None:
    assert Stories(run_from_rows([], [{"status": "rejected"}])).of(0).parts == ()
    assert described(run_from_rows(), 3) == []


def test_the_longest_gap_is_that_of_the_request_itself() -> None:
    requests: list[dict[str, Any]] = [
        {"token_times": [1.0, 2.0]}, {"token_times": []}, {"token_times": [50.0]}, {"token_times": [90.0, 93.0, 94.0]},
    ]
    gaps = Served.of(run_from_rows([], requests)).gap
    assert gaps[[0, 3]].tolist() == [1, 3] and np.isnan(gaps[[1, 2]]).all()


def test_the_worst_by_each_measure_are_chosen() -> None:
    finished = [
        {"first_scheduled": 0.0, "first_token": first, "finish": finish, "output_tokens": 3,
         "token_times": [first, gap, finish], "preemptions": preempted}
        for first, gap, finish, preempted in ((1, 2, 3, 0), (5, 6, 7, 0), (1, 2, 30, 0), (1, 9, 10, 0), (1, 2, 3, 4))
    ]
    run = run_from_rows([], [*finished, {"status": "rejected"}])
    assert worst_rows(run, Served.of(run), 1) == [1, 2, 4, 5]
    rows = described(run, 1, also={"0"})
    assert [row["id"] for row in rows] == ["0", "1", "2", "4", "5"]
    assert rows[1]["ttft"] == 5000 and rows[2]["e2e"] == 30_000 and rows[2]["gap"] == 28_000
    assert "ttft" not in rows[4] and rows[4]["parts"] == []


def test_what_is_preempted_in_flight_still_gets_its_token() -> None:
    """An asynchronous engine preempts while the step before runs. (Mutation tried: pauses from the start of the
    preempting step fall into a gap that is none.)"""
    engine = EngineConfig(block_size=4, num_blocks=20, max_num_seqs=8, max_num_batched_tokens=64)
    served = serve(Vllm(engine, Vllm.Options.model_validate({})), of_lengths(range(3, 17, 2), 14))
    assert served.total("preempted") > 1
    starts, ends = (served.run.column(name).tolist() for name in ("t_start", "t_end"))
    for id, row in served.requests.items():
        gone = [max(starts[k], ends[k - 1]) for k, seen in enumerate(served.seen) if id in seen.preempted]
        assert [part[1] for part in told(served, id) if part[0] == PREEMPTED] == gone, row
