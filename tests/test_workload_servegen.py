"""ServeGen clients: requests sampled from rates and histograms."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arcsim.workloads.build import build
from arcsim.workloads.config import load_config
from arcsim.workloads.error import WorkloadError
from arcsim.workloads.requests import OpenLoop

TRACE = "0,0,0,,0,0\r\n600,0.5,1.2,Gamma,0.7,2.9\r\n1200,0.25,2.5,Weibull,0.5,2\r\n21600,0.1,1,,0,0\r\n"
LENGTHS = {
    "0": {"input_tokens": "{10: 0.25, 20: 0.75}", "output_tokens": "{3: 1.0}"},
    "21600": {"input_tokens": "{}", "output_tokens": "{7: 2.0}", "reason_ratio": "{}"},
}


def write(folder: Path, trace: str = TRACE, lengths: Any = LENGTHS, chunk: int = 1) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"chunk-{chunk}-dataset.json").write_text(lengths if isinstance(lengths, str) else json.dumps(lengths))
    path = folder / f"chunk-{chunk}-trace.csv"
    path.write_bytes(trace.encode())
    return path


def load(path: Path, **options: Any) -> OpenLoop:
    workload = build(load_config({"kind": "trace", "path": str(path)} | options))
    assert isinstance(workload, OpenLoop)
    return workload


def test_each_window_has_exactly_its_requests(tmp_path: Path) -> None:
    made = load(write(tmp_path), window=[0, 43_200]).requests
    assert Counter(int(request.time // 600) for request in made) == {1: 300, 2: 150, 36: 60}
    assert all(before.time <= after.time for before, after in zip(made, made[1:], strict=False))


def test_lengths_are_those_of_the_histogram_in_force(tmp_path: Path) -> None:
    """Where it is empty the one before holds."""
    made = load(write(tmp_path), window=[0, 43_200]).requests
    early, late = made[:450], made[450:]
    assert {r.output for r in early} == {3} and {r.output for r in late} == {7}
    assert {r.prompt_tokens for r in late} == {10, 20}
    assert np.mean([r.prompt_tokens == 20 for r in early]) == pytest.approx(0.75, abs=0.08)


def test_either_file_or_the_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "m")
    whole = load(path).requests
    assert load(path.with_name("chunk-1-dataset.json")).requests == whole
    assert load(tmp_path / "m").requests == whole
    write(tmp_path / "m", TRACE.replace("0.25", "0.05"), chunk=12)
    assert len(load(tmp_path / "m").requests) == 2 * 510 - 120


def test_seeds_and_cuts(tmp_path: Path) -> None:
    """A window or a limit takes a part of the same sample."""
    path = write(tmp_path)
    whole = [(r.time, r.prompt_tokens) for r in load(path, window=[0, 43_200]).requests]
    assert [(r.time, r.prompt_tokens) for r in load(path, window=[0, 43_200]).requests] == whole
    assert [(r.time, r.prompt_tokens) for r in load(path, window=[0, 43_200], seed=1).requests] != whole
    part = [(r.time + 700, r.prompt_tokens) for r in load(path, window=[700, 1300]).requests]
    expected = [(time, prompt) for time, prompt in whole if 700 <= time < 1300]
    assert [prompt for _, prompt in part] == [prompt for _, prompt in expected]
    assert [time for time, _ in part] == pytest.approx([time for time, _ in expected])
    limited = load(path, limit=320).requests
    assert [r.prompt_tokens for r in limited] == [prompt for _, prompt in whole[:320]]
    assert limited[0].time == 0


def test_windows_and_clients_are_sampled_independently(tmp_path: Path) -> None:
    """Caught: one stream for all windows of a client, or for all clients."""
    same = "0,0.25,1,Gamma,1,4\n600,0.25,1,Gamma,1,4\n"
    write(tmp_path, same)
    made = load(write(tmp_path, same, chunk=2), window=[0, 1200]).requests
    first, second = [r for r in made if r.time < 600], [r for r in made if r.time >= 600]
    assert [r.prompt_tokens for r in first] != [r.prompt_tokens for r in second]
    assert [r.time for r in first] != pytest.approx([r.time - 600 for r in second])
    both = load(tmp_path, window=[0, 600]).requests
    assert len({request.time for request in both}) == 300


def test_a_vanishing_shape_is_a_burst(tmp_path: Path) -> None:
    made = load(write(tmp_path, "0,0.01,30,Gamma,0.0001,1\n")).requests
    assert len(made) == 6 and all(0 <= r.time <= 600 for r in made)


@pytest.mark.parametrize(("trace", "lengths", "reason"), [
    ("0,-1,1,Gamma,1,1\n", LENGTHS, "-trace.csv:1: rate -1"),
    ("0,1,1,Pareto,1,1\n", LENGTHS, "family 'Pareto'"),
    ("0,1,1,Gamma,0,1\n", LENGTHS, "positive shape"),
    ("0,1,1,Gamma,1\n", LENGTHS, ":1: 5 fields, but there are 6 columns"),
    ("0,fast,1,Gamma,1,1\n", LENGTHS, ":1: rate = 'fast' is not a number"),
    ("0,0,0,,0,0\n", LENGTHS, "has no requests"),
    ("0,99999,1,Gamma,1,1\n", LENGTHS, "describes 59,999,400 requests: give a 'window' in seconds or a 'limit'"),
    (TRACE, "{", "chunk-1-dataset.json: not a JSON object"),
    (TRACE, [1], "chunk-1-dataset.json: not a JSON object"),
    (TRACE, {"noon": {}}, "chunk-1-dataset.json: not a JSON object"),
    (TRACE, {}, "chunk-1-dataset.json: no input_tokens at all"),
    (TRACE, {"0": {"input_tokens": "{}"}}, "no input_tokens at all"),
    (TRACE, {"0": {"input_tokens": "{1: 1}"}}, "key 0, output_tokens: not a dict"),
    (TRACE, {"0": {"input_tokens": "__import__('os')"}}, "key 0, input_tokens: not a dict"),
    (TRACE, {"0": {"input_tokens": "{-1: 1}"}}, "is negative"),
    (TRACE, {"0": {"input_tokens": "{1: -1}"}}, "a share is negative"),
])
def test_broken_clients(tmp_path: Path, trace: str, lengths: Any, reason: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        load(write(tmp_path, trace, lengths))
    assert str(tmp_path) in str(caught.value) and reason in str(caught.value)


def test_half_a_pair(tmp_path: Path) -> None:
    path = write(tmp_path)
    other = path.with_name("chunk-1-dataset.json")
    other.rename(tmp_path / "elsewhere.json")
    with pytest.raises(WorkloadError, match="its lengths are missing"):
        load(path)
    (tmp_path / "elsewhere.json").rename(other)
    path.unlink()
    with pytest.raises(WorkloadError, match="no file .*chunk-1-trace.csv"):
        load(other)


def test_real_clients(shared: Path) -> None:
    """All requests of a client's day, and the variation of a busy window (4.79 in the file, as is its gamma's)."""
    folder = shared / "data/traces/servegen"
    made = load(folder / "reason/deepseek-r1/chunk-70-trace.csv").requests
    assert len(made) == 10_703
    busy = load(folder / "language/m-mid/chunk-23-trace.csv", window=[0, 600]).requests
    assert len(busy) == 23_961
    gaps = np.diff([request.time for request in busy])
    assert gaps.std() / gaps.mean() == pytest.approx(4.79, rel=0.1)
    with pytest.raises(WorkloadError, match="describes 88,421,391 requests"):
        load(folder / "language/m-small")
