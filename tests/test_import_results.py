"""Results of load generators and Prometheus snapshots: request tables and samples, as the client and the gauges say."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arcsim.traces.importers.errors import ImportFault
from arcsim.traces.metrics import summarise
from arcsim.traces.quantities import e2e, itl, tpot, ttft

from .command import arcsim
from .importing import Read, read


def bench(**changes: Any) -> dict[str, Any]:
    """Two requests served token by token, one refused."""
    return {
        "date": "20260301-101112", "backend": "vllm", "model_id": "m", "request_rate": 2.0, "duration": 3.0,
        "completed": 2, "total_input_tokens": 30, "request_throughput": 0.6, "input_lens": [10, 20, 5],
        "output_lens": [3, 2, 0], "ttfts": [0.5, 0.25, 0.0], "itls": [[0.1, 0.2], [0.05], []],
        "start_times": [1000.0, 1000.75, 1001.5], "generated_texts": ["", "", ""],
        "errors": ["", "", "Traceback\nbad gateway"], **changes,
    }


def loaded(folder: Path, told: Any, **options: Any) -> Read:
    return read(folder, json.dumps(told), name="result.json", **options)


def test_vllm_bench(tmp_path: Path) -> None:
    found = loaded(tmp_path, bench())
    run = found.run
    assert found.report.format == "vllm-bench" and found.report.requests == 3 and found.report.samples == 0
    assert run.request_column("arrival").tolist() == [0, 0.75, 1.5]
    assert ttft(run) == pytest.approx([0.5, 0.25]) and itl(run) == pytest.approx([0.1, 0.2, 0.05])
    assert e2e(run) == pytest.approx([0.8, 0.3]) and tpot(run) == pytest.approx([0.15, 0.05])
    rows = run.requests.to_pylist()
    assert [row["id"] for row in rows] == ["r0", "r1", "r2"]
    assert (rows[2]["status"], rows[2]["reason"]) == ("aborted", "Traceback")
    assert run.meta["client"]["request_rate"] == 2.0 and run.meta["arm"] == "measured"


def test_throughput_and_makespan_of_a_run_of_requests_alone(tmp_path: Path) -> None:
    summary = summarise(loaded(tmp_path, bench()).run)
    assert summary.makespan == pytest.approx(1.05) and summary.generated_tokens == 5
    assert summary.throughput == pytest.approx(5 / 1.05)


def test_vllm_bench_without_start_times_says_so(tmp_path: Path) -> None:
    told = bench()
    del told["start_times"]
    found = loaded(tmp_path, told)
    assert found.run.request_column("arrival").tolist() == [0, 0, 0] and ttft(found.run) == pytest.approx([0.5, 0.25])
    assert "does not say when requests were sent" in found.report.notes[0]


def test_a_request_that_does_not_say_when_it_was_sent_is_left_out(tmp_path: Path) -> None:
    """Not known, or no number that a float holds."""
    for start in (None, 10**400, float("inf")):
        found = loaded(tmp_path, bench(start_times=[4, start, 5]))
        assert found.run.request_column("arrival").tolist() == [0, 1] and found.run.requests.num_rows == 2
        assert found.report.notes[-1] == "1 requests do not say when they were sent, and were left out"
    with pytest.raises(ImportFault, match="no request in it"):
        loaded(tmp_path, bench(start_times=[None] * 3))


def test_pieces_of_several_tokens_and_answers_that_were_not_streamed_are_told(tmp_path: Path) -> None:
    found = loaded(tmp_path, bench(output_lens=[7, 2, 0], itls=[[0.1, 0.2], [], []]))
    assert "1 requests came in other pieces than tokens" in found.report.notes[0]
    assert "1 requests were not streamed" in found.report.notes[1]
    assert np.isnan(found.run.request_column("first_token")).tolist() == [False, True, True]


def test_vllm_bench_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    told = bench()
    del told["itls"]
    with pytest.raises(ImportFault, match="no itls of each request: save them with --save-detailed"):
        loaded(tmp_path, told)
    with pytest.raises(ImportFault, match="3 input_lens, 3 output_lens, 2 ttfts, 3 itls: not of one run"):
        loaded(tmp_path, bench(ttfts=[1, 2]))
    with pytest.raises(ImportFault, match=r"result.json:1: not readable as JSON .*is the file whole"):
        read(tmp_path, json.dumps(bench())[:-20], name="result.json")


def test_one_of_several_appended_results(tmp_path: Path) -> None:
    text = json.dumps(bench()) + "\n" + json.dumps(bench(output_lens=[9, 9, 9])) + "\n"
    found = read(tmp_path, text, name="all.jsonl", rank=1)
    assert found.run.request_column("output_tokens").tolist() == [9, 9, 9]
    assert "result number 1 of 2" in found.report.notes[0]
    with pytest.raises(ImportFault, match="no result number 2: there are 2, from 0"):
        read(tmp_path, text, name="all.jsonl", rank=2)


GUIDE = {"request_start": 100.0, "first_iteration": 100.25, "last_iteration": 101.0, "request_end": 101.125}


@pytest.mark.parametrize("told", [
    {"start_time": 100.0, "first_token_time": 100.25, "last_token_time": 101.0, "end_time": 101.125,
     "prompt_tokens": 12, "output_tokens": 4},
    {"scheduler_info": {"request_timings": GUIDE}, "prompt_tokens": 12, "output_tokens": 4},
    {"info": {"timings": {"request_start": 100.0, "first_token_iteration": 100.25, "last_token_iteration": 101.0,
                          "request_end": 101.125, "resolve_start": 99.0}},
     "input_metrics": {"text_tokens": 12}, "output_metrics": {"total_tokens": 4, "text_tokens": 3}},
], ids=["0.2", "0.3", "0.5"])
def test_guidellm(tmp_path: Path, told: dict[str, Any]) -> None:
    later = json.loads(json.dumps(told).replace("100.", "200.").replace("101.", "201."))
    report = {"metadata": {}, "benchmarks": [{"requests": {
        "successful": [later, told], "incomplete": [told, {"prompt_tokens": 1}], "errored": [],
    }}]}
    found = loaded(tmp_path, report)
    assert found.report.format == "guidellm" and found.report.requests == 3
    assert found.run.request_column("arrival").tolist() == [0, 0, 100]
    assert sorted(row["status"] for row in found.run.requests.to_pylist()) == ["finished", "finished", "unfinished"]
    assert ttft(found.run) == pytest.approx([0.25] * 3) and e2e(found.run) == pytest.approx([1.0, 1.0])
    assert tpot(found.run) == pytest.approx([0.25, 0.25]) and len(itl(found.run)) == 0
    assert found.run.request_column("prompt_tokens").tolist() == [12] * 3


def aiperf(start: int, phase: str = "profiling", **more: Any) -> dict[str, Any]:
    metrics = {
        "time_to_first_token": {"value": 250.0, "unit": "ms"}, "request_latency": {"value": 1.25, "unit": "s"},
        "input_sequence_length": {"value": 64, "unit": "tokens"},
        "output_sequence_length": {"value": 3, "unit": "tokens"},
        "inter_chunk_latency": {"value": [400.0, 600.0], "unit": "ms"},
    }
    metadata = {"session_num": 1, "request_start_ns": start, "request_end_ns": start + 2, "benchmark_phase": phase}
    return {"metadata": metadata | more.pop("metadata", {}), "metrics": metrics, "error": None, **more}


def test_aiperf(tmp_path: Path) -> None:
    """In order of their start; nanoseconds since 1970 are not rounded away."""
    base = 1_763_066_701_865_462_001
    rows = [
        aiperf(base + 500_000_000), aiperf(base, "warmup"), aiperf(base), aiperf(base + 1, error={"message": "no"}),
        aiperf(base + 2, metadata={"was_cancelled": True}),
    ]
    found = read(tmp_path, "\n".join(map(json.dumps, rows)) + "\n\n", name="profile_export.jsonl")
    run = found.run
    assert found.report.format == "aiperf" and "1 requests of the warm-up" in found.report.notes[0]
    assert run.request_column("arrival").tolist() == [0, 1e-9, 2e-9, 0.5]
    assert [row["reason"] for row in run.requests.to_pylist()] == ["", "no", "cancelled", ""]
    assert ttft(run) == pytest.approx([0.25, 0.25]) and e2e(run) == pytest.approx([1.25, 1.25])
    assert tpot(run) == pytest.approx([0.5, 0.5]) and itl(run) == pytest.approx([0.4, 0.6, 0.4, 0.6])
    odd = json.dumps(aiperf(base, error={"message": "not\u2028a\x85line"}), ensure_ascii=False)
    assert read(tmp_path, odd + "\r\n" + odd, name="profile_export.jsonl").run.requests.num_rows == 2
    broken = json.dumps(rows[0]) + "\n" + json.dumps({"metadata": {}}) + "\n"
    with pytest.raises(ImportFault, match=r"jsonl:2: no metadata.request_start_ns"):
        read(tmp_path, broken, name="profile_export.jsonl")


SNAPSHOTS = """\
# 1763066700.5
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 30.0
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
vllm:num_requests_waiting{engine="1",model_name="m"} 70.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 5.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 2.0
vllm:num_preemptions_total{engine="0",model_name="m"} 11.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="m"} 0.0
# 1763066705.5
vllm:num_requests_running{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} NaN
"""


def test_prometheus_snapshots_of_vllm(tmp_path: Path) -> None:
    found = read(tmp_path, SNAPSHOTS)
    assert found.report.format == "prometheus" and found.counts() == [(3, 7), (4, None)]
    assert found.column("time") == [0, 5] and found.run.meta["clock_start"] == "2025-11-13T20:45:00.500000+00:00"
    assert found.column("deferred") == [2, None] and found.column("preemptions") == [11, 11]
    assert found.column("kv_usage")[0] == 0.25 and found.run.sample_column("waiting_all").tolist()[0] == 7
    assert read(tmp_path, SNAPSHOTS, rank=1).counts() == [(30, 70)]


def test_prometheus_snapshots_of_sglang(tmp_path: Path) -> None:
    """Without times between them: a gauge that comes again begins the next. Ranks of one replica say the same."""
    one = "".join(
        f'sglang:num_running_reqs{{model_name="m",tp_rank="{rank}"}} 2.0\n'
        f'sglang:num_queue_reqs{{model_name="m",tp_rank="{rank}"}} 1.0\n'
        f'sglang:token_usage{{model_name="m",tp_rank="{rank}"}} 0.5\n' for rank in (0, 1)
    )
    found = read(tmp_path, one * 3)
    assert found.counts() == [(2, 1)] * 3 and any("as repetitions: 3" in note for note in found.report.notes)
    stamped = "".join(f'sglang:num_running_reqs{{x="y"}} {n} {1763066700000 + 1500 * n}\n' for n in range(3))
    found = read(tmp_path, stamped)
    assert found.counts() == [(0, None), (1, None), (2, None)] and found.column("time") == [0, 1.5, 3]


def test_runs_of_results_can_be_shown_and_compared(tmp_path: Path) -> None:
    loaded(tmp_path, bench())
    assert arcsim("show", tmp_path / "run").code == 0
    left = arcsim("compare", tmp_path / "run", tmp_path / "run")
    assert left.code == 0 and "TTFT" in left.out and "p50" in left.out
