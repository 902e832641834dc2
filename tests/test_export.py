"""What is written for another tool is the workload: read back, it is the same."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from arcsim.workloads.arrival import Arrival
from arcsim.workloads.blocks import BlockIds, blocks
from arcsim.workloads.build import build
from arcsim.workloads.closed_loop import ClosedLoopWorkload
from arcsim.workloads.config import load_config
from arcsim.workloads.error import WorkloadError
from arcsim.workloads.export import Export, block_size, export, milliseconds
from arcsim.workloads.prefix_tree import PrefixTree
from arcsim.workloads.requests import OpenLoop
from arcsim.workloads.words import WORDS, text_of
from arcsim.workloads.workload import Workload

from .command import arcsim, refused


def synthetic(**section: Any) -> OpenLoop:
    told = {"kind": "synthetic", "count": 60, "prompt": {"uniform": [10, 1500]}, "output": 5}
    told |= {"arrivals": {"poisson": 7}}
    made = build(load_config(told | section))
    assert isinstance(made, OpenLoop)
    return made


def read_back(folder: Path, exported: Export) -> tuple[Arrival, ...]:
    path = folder / "trace.jsonl"
    path.write_text(exported.text)
    again = build(load_config({"kind": "trace", "path": str(path)}))
    assert isinstance(again, OpenLoop)
    return again.requests


def facts(requests: tuple[Arrival, ...]) -> list[tuple[str, int, int, int]]:
    return [(request.id, round(request.time * 1e9), request.prompt_tokens, request.output) for request in requests]


def shared_beginnings(requests: tuple[Arrival, ...]) -> list[int]:
    """What each prompt has in common with those before it, in tokens."""
    tree = PrefixTree()
    return [tree.add(request.prompt).tokens for request in requests]


@pytest.mark.parametrize("section", [
    {}, {"prefix": {"tokens": 512, "groups": 4}}, {"prefix": {"tokens": 128, "groups": 3}},
    {"prefix": {"tokens": 16, "groups": 2}}, {"prompt": {"fixed": 512}}, {"arrivals": "at_once"},
    {"prompt": {"uniform": [1, 3]}, "prefix": {"tokens": 2048, "groups": 1}},
])
def test_mooncake_reads_back_the_same(tmp_path: Path, section: dict[str, Any]) -> None:
    """Arrivals to the nanosecond, lengths, and what every prompt shares with those before it. Caught: ids by place
    instead of by content, and times rounded to milliseconds."""
    made = synthetic(**section)
    again = read_back(tmp_path, export(made, "mooncake"))
    assert facts(again) == facts(made.requests)
    assert shared_beginnings(again) == shared_beginnings(made.requests)


def test_prefixes_of_a_length_that_no_block_fits_are_told(tmp_path: Path) -> None:
    made = synthetic(prefix={"tokens": 100, "groups": 1}, prompt={"fixed": 200})
    exported = export(made, "mooncake")
    assert "prompts share 5,900 tokens of beginnings seen before, and 5,664 in blocks of 16" in exported.notes[-1]
    assert sum(shared_beginnings(read_back(tmp_path, exported))) == 5664


def test_a_public_trace_comes_through(shared: Path, tmp_path: Path) -> None:
    path = shared / "data" / "traces" / "mooncake_fast25" / "conversation_trace.head5000.jsonl"
    lines = path.read_text().splitlines()[:300]
    (tmp_path / "head.jsonl").write_text("\n".join(lines) + "\n")
    made = build(load_config({"kind": "trace", "path": str(tmp_path / "head.jsonl")}))
    assert isinstance(made, OpenLoop)
    exported = export(made, "mooncake")
    assert exported.notes == () and "--timed-trace-chunk-hash-size 512" in exported.use
    told = [json.loads(line) for line in exported.text.splitlines()]
    ids: dict[int, int] = {}
    for row, line in zip(told, map(json.loads, lines), strict=True):
        for number in line["hash_ids"]:
            ids.setdefault(number, len(ids))
        assert row == line | {"hash_ids": [ids[number] for number in line["hash_ids"]]}


@given(time=st.floats(0, 1e7))
def test_milliseconds_give_the_time_back(time: float) -> None:
    """Some to the last bit but one: a double of milliseconds is coarser than one of seconds here and there."""
    assert abs(milliseconds(time) / 1000 - time) <= time * 2**-52


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 40)), max_size=6), st.integers(1, 20))
def test_blocks_hold_every_token_once_and_in_order(prompt: list[tuple[str, int]], size: int) -> None:
    cut = list(blocks(prompt, size))
    assert all(sum(part for *_, part in block) == size for block in cut[:-1])
    tokens = [(name, start + n) for block in cut for name, start, part in block for n in range(part)]
    assert tokens == [(name, n) for name, length in prompt for n in range(length)]


def test_a_last_block_shares_its_id_with_one_that_goes_on() -> None:
    ids = BlockIds(10)
    assert ids.of((("a", 15),)) == [0, 1] and ids.of((("a", 30),)) == [0, 1, 2]
    assert ids.of((("a", 5), ("b", 5))) == [3] and ids.of((("a", 5), ("b", 20))) == [3, 4, 5]
    assert ids.of((("a", 5), ("c", 5))) == [6] and ids.of((("b", 15),)) == [7, 8]


def closed() -> ClosedLoopWorkload:
    requests = tuple(Arrival(f"r{n}", 0.0, ((n, 20),), 3, 3) for n in range(5))
    return ClosedLoopWorkload("loop", requests, 2)


def test_a_closed_loop_has_no_times() -> None:
    with pytest.raises(WorkloadError, match="loop is a closed loop: .* aiperf, vllm-bench can do without"):
        export(closed(), "mooncake")
    exported = export(closed(), "aiperf")
    assert [json.loads(line).keys() for line in exported.text.splitlines()] == [
        {"input_length", "output_length", "hash_ids"}
    ] * 5
    assert "--concurrency 2 --request-count 5" in exported.use
    assert "--max-concurrency 2" in export(closed(), "vllm-bench").use


def test_vllm_benchs_prompts_have_a_word_for_every_token() -> None:
    made = synthetic(prefix={"tokens": 64, "groups": 1})
    rows = [json.loads(line) for line in export(made, "vllm-bench").text.splitlines()]
    assert [len(row["prompt"].split()) for row in rows] == [request.prompt_tokens for request in made.requests]
    assert {row["output_tokens"] for row in rows} == {5}
    beginnings = {tuple(row["prompt"].split()[:64]) for row in rows if len(row["prompt"].split()) >= 64}
    assert len(beginnings) == 1 and len({row["prompt"] for row in rows}) == 60
    assert len(set(WORDS)) == 256 and text_of((("x", 9),)).startswith(text_of((("x", 4),)))


def test_what_a_format_cannot_say_is_told() -> None:
    requests = tuple(Arrival(f"r{n}", n / 3, ((n, 20),), 3, 9, n) for n in range(3))
    made: Workload = OpenLoop("some", requests)
    notes = export(made, "mooncake").notes
    assert "3 outputs end before max_tokens" in notes[0] and "priorities" in notes[1]
    assert block_size(requests) == (512, [])
    with pytest.raises(WorkloadError, match="no export format 'csv'; there are mooncake, aiperf, vllm-bench"):
        export(made, "csv")


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "chat.jsonl"
    left = arcsim("export", "chat", "--out", out, "--set", "workload.count=30")
    assert left.code == 0 and "30 requests written to" in left.out and "replay: vllm bench serve" in left.out
    again = arcsim("workloads", out, "--json").json["chat"]["statistics"]
    own = arcsim("workloads", "chat", "--json", "--set", "workload.count=30").json["chat"]["statistics"]
    assert {k: again[k] for k in ("count", "span", "prompt", "output")} == \
        {k: own[k] for k in ("count", "span", "prompt", "output")}
    assert again["reuse"]["tokens"] == own["reuse"]["tokens"] > 0
    told = arcsim("export", out, "--out", tmp_path / "b.jsonl", "--format", "aiperf", "--json").json
    spaced = arcsim("export", out, "--out", tmp_path / "my b.jsonl", "--json").json
    assert f"--dataset-path '{tmp_path}/my b.jsonl' " in spaced["replay"]
    assert told["requests"] == 30 and f"--input-file {tmp_path / 'b.jsonl'} " in told["replay"]
    message = refused(arcsim("export", "h200_ragged", "--out", tmp_path / "none"))
    assert "has 6 workloads" in message and "--set sweep={}" in message and not (tmp_path / "none").exists()
    assert "no export format 'x'" in refused(arcsim("export", "chat", "--out", tmp_path / "none", "--format", "x"))
