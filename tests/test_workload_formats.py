"""Every trace format: recognised, read, and its oddities."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arcsim.workloads.arrival import Arrival
from arcsim.workloads.build import build
from arcsim.workloads.config import load_config
from arcsim.workloads.formats import choose_format
from arcsim.workloads.requests import OpenLoop

AZURE = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
    b"2023-11-16 18:15:50.9951690,396,109"
)
BURST_1 = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
)
BURST_2 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "19440110.0,a-b,43,GPT-4,906,446,1352,Conversation log\n19440161.0,,2,ChatGPT,36,29,65,API log\n"
)
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,109\n"


def load(path: Path, **options: Any) -> OpenLoop:
    workload = build(load_config({"kind": "trace", "path": str(path)} | options))
    assert isinstance(workload, OpenLoop)
    return workload


def facts(workload: OpenLoop) -> list[tuple[float, int, int]]:
    return [(request.time, request.prompt_tokens, request.output) for request in workload.requests]


def write(folder: Path, text: str | bytes, name: str = "trace") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def mooncake(**fields: Any) -> str:
    return json.dumps({"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]} | fields) + "\n"


def ragpulse(**fields: Any) -> str:
    parts = {"sys_prompt": [1, 2], "passages_ids": [3], "history": [4], "web_search": [], "user_input": [5]}
    row = {"timestamp": "10", "input_length": 1000, "output_length": 5, "hash_ids": parts, "session_id": "s"}
    return json.dumps(row | fields) + "\n"


@pytest.mark.parametrize(("name", "text"), [
    ("azure", AZURE),
    ("burstgpt", BURST_1),
    ("burstgpt", BURST_2),
    ("vidur", VIDUR),
    ("vidur", "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.8\n"),
    ("mooncake", mooncake()),
    ("ragpulse", ragpulse()),
    ("servegen", "0,0.055,0.56,Gamma,3.1,5.6\r\n"),
    ("servegen", "0,0,0,,0,0\r\n"),
    ("plain", "arrival,prompt,output\n0,1,1\n"),
    ("plain", "\ufeffPrompt Tokens,Completion-Tokens\n1,1\n"),
    ("plain", '{"arrival": 0, "prompt": 1, "output": 1}\n'),
    ("plain", "0.5,10,20\n"),
    ("plain", '"arrival","prompt","output"\n0,1,"1"\n'),
])
def test_formats_are_recognised_by_the_first_line(tmp_path: Path, name: str, text: str | bytes) -> None:
    assert choose_format(write(tmp_path, text), "auto").name == name


def test_azure_without_final_newline_and_with_seven_digits(tmp_path: Path) -> None:
    assert facts(load(write(tmp_path, AZURE))) == [(0, 374, 44), (4.314579, 396, 109)]


def test_azure_with_time_zones(tmp_path: Path) -> None:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00+00:00,1,2\n2024-05-10 02:00:01.5+02:00,3,4\n"
    assert facts(load(write(tmp_path, text))) == [(0, 1, 2), (1.5, 3, 4)]


def test_burstgpt_starts_at_its_first_request(tmp_path: Path) -> None:
    workload = load(write(tmp_path, BURST_2))
    assert facts(workload) == [(0, 906, 446), (51, 36, 29)]
    assert any("19440110.000 s: rebased" in note for note in workload.notes)
    assert facts(load(write(tmp_path, BURST_1))) == [(0, 472, 18)]


def test_requests_without_output_are_dropped_or_generate_one(tmp_path: Path) -> None:
    path = write(tmp_path, BURST_1 + "6,GPT-4,100,0,100,API log\n7,GPT-4,0,9,9,API log\n8,GPT-4,50,7,57,API log\n")
    workload = load(path)
    assert facts(workload) == [(0, 472, 18), (3, 50, 7)]
    assert {"1 rows without output tokens dropped", "1 rows without prompt tokens dropped"} <= set(workload.notes)
    kept = load(path, zero_output="one")
    assert facts(kept) == [(0, 472, 18), (1, 100, 1), (3, 50, 7)]
    assert "1 rows without output tokens generate one" in kept.notes


def test_vidur_keeps_its_first_wait_and_may_have_no_arrivals(tmp_path: Path) -> None:
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n2.040121,2048,512\n5.8926549999999995,1,2\n"
    assert facts(load(write(tmp_path, text))) == [(2.040121, 2048, 512), (5.8926549999999995, 1, 2)]
    workload = load(write(tmp_path, "num_prefill_tokens,num_decode_tokens,pd_ratio\n5,6,x\n7,8,y\n"))
    assert facts(workload) == [(0, 5, 6), (0, 7, 8)]
    assert "no arrival times: all at once" in workload.notes


def test_mooncake_hashes_are_the_prompt(tmp_path: Path) -> None:
    text = mooncake() + mooncake(timestamp=3001, input_length=1024, hash_ids=[0, 7]) + "\n"
    workload = load(write(tmp_path, text))
    assert [request.time for request in workload.requests] == [0, 3.001]
    assert [request.prompt for request in workload.requests] == [((0, 512), (1, 88)), ((0, 512), (7, 512))]


def test_mooncake_scaled_down_still_shares(tmp_path: Path) -> None:
    text = mooncake() + mooncake(input_length=1024, hash_ids=[0, 7])
    one, other = load(write(tmp_path, text), scale_prompt=0.1).requests
    assert (one.prompt, other.prompt) == (((0, 52), (1, 8)), ((0, 52), (7, 51)))
    one, other = load(write(tmp_path, text), max_prompt=520).requests
    assert (one.prompt, other.prompt) == (((0, 512), (1, 8)), ((0, 512), (7, 8)))


def test_ragpulse_components_with_known_lengths(tmp_path: Path) -> None:
    """In the order of the record, every id with the length that the dataset gives; the rest is the request's own."""
    names = ("sys_prompt", "passages", "history", "user_input", "web_search")
    lengths = {"sys_prompt": {1: 512, 2: 100}, "passages": {3: 300}, "history": {4: 11}, "user_input": {5: 7, 6: 9},
               "web_search": {8: 9}}
    for number, name in enumerate(names, 1):
        rows = [json.dumps({f"{name}_id": id, "token_length": tokens}) for id, tokens in lengths[name].items()]
        write(tmp_path, "\n".join(rows), f"{number}_{name}.jsonl")
    other = {"sys_prompt": [1, 2], "passages_ids": [3], "history": [4], "web_search": [], "user_input": [6]}
    path = write(tmp_path, ragpulse(input_length=940) + ragpulse(input_length=928, hash_ids=other), "0_trace.jsonl")
    workload = load(path)
    one, two = (request.prompt for request in workload.requests)
    assert one == ((1, 512), (2, 100), (3, 300), (4, 11), (5, 7), ("rest of row 0", 10))
    assert two == ((1, 512), (2, 100), (3, 300), (4, 11), (6, 5))
    assert "component lengths are those of the dataset" in workload.notes


def test_ragpulse_components_without_known_lengths(tmp_path: Path) -> None:
    """A chunk that is not a text's last has 512 tokens, ids not met before share what is left, and keep it."""
    other = {"sys_prompt": [1, 2], "passages_ids": [3, 9], "history": [4], "web_search": [], "user_input": [5]}
    path = write(tmp_path, ragpulse(input_length=1000) + ragpulse(input_length=1100, hash_ids=other) + "\n")
    workload = load(path)
    one, two = (request.prompt for request in workload.requests)
    assert one == ((1, 512), (2, 122), (3, 122), (4, 122), (5, 122))
    assert two == ((1, 512), (2, 122), (3, 122), (9, 100), (4, 122), (5, 122))
    assert any(note.startswith("component lengths are worked out: 1_sys_prompt.jsonl") for note in workload.notes)


def test_ragpulse_clock_that_wraps_is_continued(tmp_path: Path) -> None:
    """Caught: sorting the file, which would interleave its two recordings."""
    text = ragpulse(timestamp="604453", output_length=1) + ragpulse(timestamp="0", output_length=2)
    workload = load(write(tmp_path, text + ragpulse(timestamp="27", output_length=3) + "\n"))
    assert facts(workload) == [(0, 1000, 1), (347, 1000, 2), (374, 1000, 3)]
    assert any("starts again at line 2" in note for note in workload.notes)


def test_plain_columns_under_other_names(tmp_path: Path) -> None:
    text = "Arrival_ms, Input-Len ,output tokens,priority,max_tokens\n1500,10,20,,64\n2000,12.0,21,3,\n"
    made = load(write(tmp_path, text)).requests
    assert made[0] == Arrival("r0", 1.5, (("r0", 10),), 20, 64, 0)
    assert made[1] == Arrival("r1", 2.0, (("r1", 12),), 21, 21, 3)


def test_plain_json_lines(tmp_path: Path) -> None:
    text = '{"prompt": 10, "output": 20, "time": 0.25}\r\n\r\n{"output": 2, "prompt": 1, "time": 1, "priority": -1}'
    made = load(write(tmp_path, text)).requests
    assert [(r.time, r.prompt_tokens, r.output, r.priority) for r in made] == [(0.25, 10, 20, 0), (1, 1, 2, -1)]


def test_plain_without_header_and_with_dates(tmp_path: Path) -> None:
    workload = load(write(tmp_path, "0.5,10,20\n1,11,21\n"))
    assert facts(workload) == [(0.5, 10, 20), (1, 11, 21)]
    assert any("no header" in note for note in workload.notes)
    text = "timestamp,prompt,output\n2024-01-01T00:00:05,1,1\n2024-01-01T00:00:02.5,2,2\n"
    workload = load(write(tmp_path, text))
    assert facts(workload) == [(0, 2, 2), (2.5, 1, 1)]
    assert "1 times went back: sorted by time" in workload.notes


def test_plain_with_an_epoch_is_rebased(tmp_path: Path) -> None:
    workload = load(write(tmp_path, "arrival,prompt,output\n1700000000.5,1,1\n1700000001,2,2\n"))
    assert facts(workload) == [(0, 1, 1), (0.5, 2, 2)]


def test_a_named_format_overrides_the_detection(tmp_path: Path) -> None:
    """`timestamp` is milliseconds for Mooncake and seconds for a plain file."""
    path = write(tmp_path, mooncake(timestamp=0) + mooncake(timestamp=2000))
    assert [request.time for request in load(path).requests] == [0, 2]
    assert [request.time for request in load(path, format="plain").requests] == [0, 2000]


def test_real_azure_rows_are_those_of_vidur(shared: Path) -> None:
    azure = load(shared / "data/traces/azure_llm_2023/AzureLLMInferenceTrace_conv.csv", limit=5000).requests
    vidur = load(shared / "data/traces/vidur_processed/splitwise_conv.head5000.csv").requests
    assert [(r.prompt, r.output) for r in azure] == [(r.prompt, r.output) for r in vidur]
    assert len(azure) == 5000
    np.testing.assert_allclose([r.time for r in azure], [r.time for r in vidur], atol=1e-6)


@pytest.mark.parametrize("name", ["0_trace.head5000.jsonl", "0_trace.tail3.jsonl"])
def test_real_ragpulse_prompts_are_complete(shared: Path, name: str) -> None:
    path = shared / "data/traces/ragpulse" / name
    rows = [json.loads(line) for line in path.read_text().splitlines() if line]
    made = load(path).requests
    assert [r.prompt_tokens for r in made] == [row["input_length"] for row in rows]
    assert [r.output for r in made] == [row["output_length"] for row in rows]
    assert [r.prompt[0][0] for r in made] == [row["hash_ids"]["sys_prompt"][0] for row in rows]
    assert all(before.time <= after.time for before, after in zip(made, made[1:], strict=False))
    lengths: dict[Any, int] = {}
    for request in made:
        for id, length in request.prompt[:-1]:  # the total may cut the last
            assert lengths.setdefault(id, length) == length


@pytest.mark.parametrize("name", ["BurstGPT_1.first3rows.csv", "BurstGPT_3.first4rows.csv"])
def test_real_burstgpt_headers(shared: Path, name: str) -> None:
    made = load(shared / "data/traces/burstgpt_format_only" / name).requests
    expected = {"1": [472, 1087, 417], "3": [906, 36, 1779, 935]}[name[9]]
    assert [r.prompt_tokens for r in made] == expected
