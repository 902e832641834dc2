"""What cannot be read: one message with file, line and reason, and never half a workload."""

import os
from pathlib import Path
from typing import Any

import pytest

from arcsim.workloads.build import build
from arcsim.workloads.config import load_config
from arcsim.workloads.error import WorkloadError

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,374,44\n"
MOON = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
RAG = (
    '{"timestamp": "1", "input_length": 90, "output_length": 5, "hash_ids": {"sys_prompt": [1]}, "session_id": ""}\n'
)


def message(path: Path | str, **options: Any) -> str:
    with pytest.raises(WorkloadError) as caught:
        build(load_config({"kind": "trace", "path": str(path)} | options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("text", "where", "reason"), [
    (AZURE + "2023-11-16 18:15:47,396", ":3: ", "2 fields, but there are 3 columns"),
    (AZURE + "2023-11-16 18:15:47,many,3", ":3: ", "ContextTokens = 'many' is not a number"),
    (AZURE + "\n\n2023-11-16 18:15:47,5,-3\n", ":5: ", "GeneratedTokens = '-3' is negative"),
    (AZURE + "yesterday,5,3\n", ":3: ", "TIMESTAMP = 'yesterday' is not a date"),
    ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "", "has no rows"),
    (BURST + "5,GPT-4,1.5,18,490,Conversation log\n", ":2: ", "Request tokens = '1.5' is not a whole number"),
    (BURST + "nan,GPT-4,1,18,490,Conversation log\n", ":2: ", "Timestamp = 'nan' is not a number"),
    (VIDUR + "1,,44\n", ":3: ", "num_prefill_tokens = '' is missing"),
    (VIDUR + "1,9999999999,44\n", ":3: ", "is more than 1,000,000,000 tokens"),
    (VIDUR + "inf,9,44\n", ":3: ", "arrived_at = 'inf' is too large"),
    (MOON + '{"timestamp": 0, "input_len', ":2: ", "not JSON"),
    (MOON + "[1, 2]\n", ":2: ", "a JSON list where an object"),
    (MOON + MOON.replace("600", "5000"), ":2: ", "2 hash_ids for input_length 5000"),
    (MOON + MOON.replace("[0, 1]", '"01"'), ":2: ", "not a list"),
    (MOON + MOON.replace("[0, 1]", "[0, 1.5]"), ":2: ", "not a list of numbers or texts"),
    (MOON + MOON.replace('"output_length": 5, ', ""), ":2: ", "output_length = None is missing"),
    (MOON + MOON.replace("600", "true"), ":2: ", "input_length = True is not a number"),
    (MOON + MOON.replace("600", "NaN"), ":2: ", "input_length = nan is not a number"),
    (MOON + MOON.replace("600", "1" + "0" * 400), ":2: ", "is too large"),
    (RAG + RAG.replace('{"sys_prompt": [1]}', "[1]"), ":2: ", "not an object of component lists"),
    (RAG + RAG.replace("[1]", "1"), ":2: ", "not a list"),
    (RAG + RAG.replace('"1"', '"soon"'), ":2: ", "timestamp = 'soon' is not a number"),
    ("arrival,prompt,output\n0,1,1\n,1,1\n", ":3: ", "arrival = '' is missing"),
    ("arrival,prompt,output,max_tokens\n0,1,1,0\n", ":2: ", "max_tokens = 0"),
    ("arrival,prompt,output,priority\n0,1,1,high\n", ":2: ", "priority = 'high' is not a number"),
    ("arrival,prompt,prompt,output\n0,1,5,2\n", ":1: ", "two columns have the same name"),
    ("when,how long\n1,2\n", ":1: ", "format not recognised from 'when, how long'"),
    ('{"a": 1}\n', ":1: ", "format not recognised from 'a'"),
    ("x" * 200_000, ":1: ", "format not recognised"),
    ("[\n", ":1: ", "format not recognised"),
    ("", "", "is empty"),
    ("\n\n  \n", "", "is empty"),
    ("arrival,prompt,output\n0,1,0\n", "", "no request is left to serve"),
])
def test_broken_text(tmp_path: Path, text: str, where: str, reason: str) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(text)
    said = message(path)
    assert f"{path}{where}" in said
    assert reason in said


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\0\0\0", b"arrival,prompt,output\n1,2,\xff\xfe\n"])
def test_binary_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(data)
    assert "is not" in message(path) and "text" in message(path)


def test_a_folder(tmp_path: Path) -> None:
    assert "is a folder without ServeGen files" in message(tmp_path)
    assert "is a folder" in message(tmp_path, format="azure")
    assert "is a folder" in message(tmp_path, format="plain")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "pipe is a pipe or a device" in message(tmp_path / "pipe")


def test_a_file_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(tmp_path / "none.csv") in message(tmp_path / "none.csv")
    monkeypatch.chdir(tmp_path)
    config = load_config({"kind": "trace", "path": "none.csv"})
    with pytest.raises(WorkloadError, match="no file none.csv in .*configs or "):
        build(config, tmp_path / "configs")


@pytest.mark.parametrize(("format", "text", "reason"), [
    ("azure", VIDUR, "no column 'TIMESTAMP', which format 'azure' has; found: 'arrived_at"),
    ("burstgpt", VIDUR, "no column 'Timestamp'"),
    ("vidur", AZURE, "no column 'num_prefill_tokens'"),
    ("mooncake", AZURE, "not JSON"),
    ("mooncake", RAG, "hash ids are not a list"),
    ("ragpulse", MOON, "not an object of component lists"),
    ("ragpulse", "{}\n", "no column 'timestamp'"),
    ("servegen", AZURE, "ServeGen's chunk-N-trace.csv comes with"),
    ("plain", "arrival,prompt\n0,1\n", "no column for the output (any of output, output_tokens"),
])
def test_a_file_in_another_format_than_named(tmp_path: Path, format: str, text: str, reason: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    assert reason in message(path, format=format)


def test_a_broken_last_line_leaves_nothing(tmp_path: Path) -> None:
    """Caught: stopping at `limit` rows before the rest of the file has been checked."""
    path = tmp_path / "trace.csv"
    path.write_text(VIDUR + "1,2,3\n" * 100 + "1,2\n")
    assert f"{path}:103: " in message(path, limit=5)
