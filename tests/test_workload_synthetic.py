"""Synthetic workloads: counts, prefixes, limits, priorities and seeds."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from arcsim.workloads.arrival import Arrival
from arcsim.workloads.build import build
from arcsim.workloads.config import load_config
from arcsim.workloads.error import WorkloadError
from arcsim.workloads.requests import OpenLoop
from arcsim.workloads.workload import Workload

BASE: dict[str, Any] = {
    "kind": "synthetic", "count": 40, "prompt": {"lognormal": {"mean": 300, "cv": 1}},
    "output": {"gamma": {"mean": 60, "cv": 1}}, "arrivals": {"poisson": 3},
    "prefix": {"tokens": 64, "groups": 5, "order": "random"}, "seed": 3,
}


def requests(base: Path | None = None, **section: Any) -> tuple[Arrival, ...]:
    workload = build(load_config({"kind": "synthetic"} | section), base)
    assert isinstance(workload, OpenLoop)
    return workload.requests


def test_the_published_workload() -> None:
    made = requests(count=8, prompt={"spread": [50, 500], "distinct": 8}, output=64)
    assert [request.prompt_tokens for request in made] == [50, 114, 179, 243, 307, 371, 436, 500]
    assert [request.id for request in made] == [f"r{index}" for index in range(8)]
    assert {(r.time, r.output, r.max_tokens, r.priority) for r in made} == {(0, 64, 64, 0)}
    assert len({request.prompt for request in made}) == 8


def test_every_pass_begins_at_the_beginning() -> None:
    workload: Workload = build(load_config(BASE))
    assert list(workload.start().arrivals()) == list(workload.start().arrivals())
    assert workload.start().on_finish("r0", 1.0) is None


def test_streams_are_independent() -> None:
    """Caught: one generator for all, where other arrivals give other lengths."""
    plain = requests(**BASE)
    for change in ({"arrivals": "at_once"}, {"prompt": 100}, {"output": 5}, {"prefix": None}):
        other = requests(**BASE | change)
        assert "prompt" in change or [r.prompt_tokens for r in other] == [r.prompt_tokens for r in plain]
        assert "output" in change or [r.output for r in other] == [r.output for r in plain]
        assert "arrivals" in change or [r.time for r in other] == [r.time for r in plain]
        assert "prefix" in change or [r.prompt[0][0] for r in other] == [r.prompt[0][0] for r in plain]


def test_another_seed_is_another_workload() -> None:
    plain, other = requests(**BASE), requests(**BASE | {"seed": 4})
    for fact in ("time", "output", "prompt_tokens"):
        assert [getattr(r, fact) for r in plain] != [getattr(r, fact) for r in other]


def test_a_larger_count_begins_like_a_smaller_one() -> None:
    assert requests(**BASE | {"count": 80})[:40] == requests(**BASE)


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_every_process_makes_the_same(hash_seed: str) -> None:
    """Caught: seeding a stream with `hash(name)`."""
    program = (
        "import json, sys; from arcsim.workloads.build import build; from arcsim.workloads.config import load_config;"
        "made = build(load_config(json.loads(sys.argv[1]))).requests; print(json.dumps([repr(r) for r in made]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(BASE)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    assert json.loads(done.stdout) == [repr(request) for request in requests(**BASE)]


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 120), st.integers(1, 60))
def test_a_prefix_is_part_of_the_prompt(tokens: int, groups: int, prompt: int, count: int) -> None:
    """A prompt no longer than the prefix is the beginning of it and has nothing of its own."""
    made = requests(count=count, prompt=prompt, output=1, prefix={"tokens": tokens, "groups": groups})
    for index, request in enumerate(made):
        assert request.prompt_tokens == prompt
        assert request.prompt[0] == (f"prefix {index % groups}", min(tokens, prompt))
        assert request.prompt[1:] == (((f"r{index}", prompt - tokens),) if prompt > tokens else ())


def test_max_tokens() -> None:
    """A limit above the output lets it end by itself; one below ends it."""
    made = requests(count=3, prompt=1, output={"spread": [10, 30]}, max_tokens=20)
    assert [(request.output, request.max_tokens) for request in made] == [(10, 20), (20, 20), (20, 20)]
    made = requests(count=2, prompt=1, output={"spread": [10, 15]}, max_tokens={"factor": 1.5})
    assert [(request.output, request.max_tokens) for request in made] == [(10, 15), (15, 23)]
    workload = build(load_config({"kind": "synthetic", "count": 3, "prompt": 1, "output": 9, "max_tokens": 5}))
    assert list(workload.notes) == ["max_tokens ends 3 of 3 outputs early"]


def test_priorities_cycle() -> None:
    assert [r.priority for r in requests(count=5, prompt=1, output=1, priority=[2, 0])] == [2, 0, 2, 0, 2]
    assert [r.priority for r in requests(count=2, prompt=1, output=1, priority=-3)] == [-3, -3]


def test_rows_keep_prompt_and_output_together(tmp_path: Path) -> None:
    table = [[10, 1], [20, 2], [30, 3]]
    assert _pairs(requests(rows=table)) == [(10, 1), (20, 2), (30, 3)]
    assert _pairs(requests(rows=table, count=5)) == [(10, 1), (20, 2), (30, 3), (10, 1), (20, 2)]
    drawn = _pairs(requests(rows=table, count=200, rows_order="random"))
    assert set(drawn) == {(10, 1), (20, 2), (30, 3)} and drawn[:3] != [(10, 1), (20, 2), (30, 3)]
    (tmp_path / "rows.csv").write_text("10,1\n20,2\n30,3\n")
    assert _pairs(requests(tmp_path, rows="rows.csv")) == [(10, 1), (20, 2), (30, 3)]
    (tmp_path / "rows.csv").write_text("10,1\n20,0\n")
    with pytest.raises(WorkloadError, match=r"rows\.csv: a row has no prompt or no output"):
        requests(tmp_path, rows="rows.csv")


def _pairs(made: tuple[Arrival, ...]) -> list[tuple[int, int]]:
    return [(request.prompt_tokens, request.output) for request in made]


def test_explicit_times_give_the_count() -> None:
    made = requests(prompt=5, output=1, arrivals={"explicit": [0, 0.5, 2]})
    assert [request.time for request in made] == [0, 0.5, 2]


def test_content_beyond_the_longest_piece_is_several() -> None:
    (request,) = requests(count=1, prompt=3_000_000, output=1)
    assert request.prompt_tokens == 3_000_000
    assert max(length for _, length in request.prompt) <= 1 << 20
    assert len({name for name, _ in request.prompt}) == len(request.prompt) == 3
