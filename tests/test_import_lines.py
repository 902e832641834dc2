"""Every engine's lines are read as they are meant: of the public samples, and of lines made up in their formats."""

import json
from math import isnan
from pathlib import Path

import pytest

from arcsim.traces.importers.catalog import LOGS
from arcsim.traces.importers.record import Record

from .importing import (
    decode,
    iteration,
    launch,
    lmdeploy,
    mistralrs,
    prefill,
    pytorch,
    read,
    records,
    release,
    tgi,
    triton,
    vllm,
    vllm_v0,
)

NAMES = {
    "vLLM": "vllm", "SGLang": "sglang", "mistral.rs": "mistralrs", "TensorRT-LLM": "tensorrt", "LMDeploy": "lmdeploy",
    "llama.cpp server": "llamacpp",
}


def only(engine: str, line: str) -> Record:
    found = records(engine, line)
    assert found is not None and len(found) == 1, found
    return found[0]


def test_every_public_sample(shared: Path, tmp_path: Path) -> None:
    """Caught: each number of a line replaced by another one of it (running and waiting swapped, of a prefill line
    `#new-seq` for `#running-req`)."""
    samples = [json.loads(line) for line in (shared / "loglines" / "loglines.jsonl").read_text().splitlines()]
    for sample in samples:
        record = only(NAMES[sample["engine"]], sample["line"])
        if sample["kind"] != "event":
            assert (record.running, record.waiting) == (sample["running"], sample["waiting"]), sample["line"]
            assert record.swapped == sample.get("swapped")
        elif NAMES[sample["engine"]] != "llamacpp":
            assert record.running is None and record.waiting is None
            assert record.preempted == 1 or record.preemptions == 151
        whole = read(tmp_path, sample["line"] + "\n")
        assert whole.report.format == NAMES[sample["engine"]] and whole.report.matched == 1, sample["line"]


def test_the_public_samples_of_an_engine_as_one_log(shared: Path, tmp_path: Path) -> None:
    """With and without ranks, from many builds and years: nothing is left out."""
    samples = [json.loads(line) for line in (shared / "loglines" / "loglines.jsonl").read_text().splitlines()]
    for engine, name in NAMES.items():
        mine = [sample for sample in samples if sample["engine"] == engine]
        found = read(tmp_path, "\n".join(sample["line"] for sample in mine))
        told = [(each["running"], each["waiting"]) for each in mine if each["kind"] != "event"]
        assert found.report.format == name and found.report.matched == found.report.samples == len(mine)
        assert name == "llamacpp" or found.counts() == told


def test_no_engine_takes_the_lines_of_another(shared: Path) -> None:
    """LMDeploy of 2025 prints what vLLM does, but for the end: vLLM's reader takes that, and auto prefers LMDeploy."""
    for text in (shared / "loglines" / "loglines.jsonl").read_text().splitlines():
        sample = json.loads(text)
        taking = [importer.name for importer in LOGS if records(importer.name, sample["line"]) is not None]
        assert taking == [NAMES[sample["engine"]]]


def test_the_loggers_lines_of_real_runs(shared: Path, tmp_path: Path) -> None:
    for name, count, seconds in (("vllm_0.32_cpu.log", 78, 123.0), ("vllm_0.32_cpu_pressure.log", 59, 33.0)):
        text = (shared / "loglines" / name).read_text()
        found = read(tmp_path, text)
        assert found.report.samples == found.report.matched == found.report.lines == count
        assert set(found.column("preemptions")) == {None}  # they happened, but these lines never show them
        assert found.column("time")[-1] == seconds and max(found.column("running")) > 8


def test_vllm() -> None:
    record = only("vllm", vllm(7, 3, more="Deferred: 2 reqs, Preemptions: 4, "))
    assert record[:5] == ("interval", "03-04 05:06:07", 7, 3, 0)
    assert (record.deferred, record.preempted, record.swapped) == (2, 4, None)
    rates = (record.prompt_throughput, record.generation_throughput, record.kv_usage, record.hit_rate)
    assert rates == pytest.approx((812.5, 93.2, 0.417, 0.125))
    old = only("vllm", vllm_v0(5, 6, swapped=8))
    assert (old.running, old.waiting, old.swapped, old.rank) == (5, 6, 8, 0)
    oldest = "INFO 07-20 01:02:03 scheduler.py:269] Throughput: 4.5 tokens/s, Running: 1 reqs, Swapped: 0 reqs, " \
        "Pending: 2 reqs, GPU KV cache usage: 0.1%, CPU KV cache usage: 0.0%"
    assert only("vllm", oldest)[:4] == ("interval", "07-20 01:02:03", 1, 2)
    timed = "INFO 02-01 06:36:05 llm_engine.py:921] Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: " \
        "2.0 tokens/s, Max iteration time: 31.7 ms, Avg time/tok:9.4 ms, Running: 3 reqs, Swapped: 0 reqs, Pending: " \
        "11 reqs, GPU KV cache usage: 99.0%, CPU KV cache usage: 0.0%"
    assert only("vllm", timed)[:4] == ("interval", "02-01 06:36:05", 3, 11)
    dashed = "2024-12-23 18:28:10 - vllm.engine.metrics - INFO - " + vllm_v0(1, 2).split("] ")[1]
    assert only("vllm", dashed)[:4] == ("interval", "2024-12-23 18:28:10", 1, 2)


def test_vllms_iterations_are_steps(tmp_path: Path) -> None:
    dummy = iteration(9, 0, 0, 1.0).replace("Iteration(9)", "Iteration(9) (dummy)")
    found = read(tmp_path, "\n".join([iteration(7, 2, 5, 30.5), iteration(8, 0, 7, 10.0), dummy, vllm(7, 4)]) + "\n")
    assert found.report.matched == 4 and found.report.steps == 2
    run = found.run
    assert run.column("running").tolist() == run.column("forward_width").tolist() == [7, 7]
    assert run.column("prefill_seqs").tolist() == [2, 0] and run.column("prefill_tokens").tolist() == [200, 0]
    assert run.step_seconds() == pytest.approx([0.0305, 0.01])
    assert "waiting" not in run.meta["known_step_columns"] and "running" in run.meta["known_step_columns"]
    assert found.column("kind") == ["iteration", "iteration", "interval"]
    assert found.counts() == [(7, None), (7, None), (7, 4)]


def test_steps_on_a_clock_of_whole_seconds_neither_overlap_nor_go_back(tmp_path: Path) -> None:
    lines = [iteration(n, 0, 3, 90.0, f"12-30 11:12:{13 + n // 10}") for n in range(40)]
    run = read(tmp_path, "\n".join(lines) + "\n").run
    starts, ends = run.column("t_start"), run.column("t_end")
    assert (starts[1:] >= ends[:-1]).all() and ends - starts == pytest.approx(0.09)
    assert starts[0] == pytest.approx(0, abs=1e-9) and ends[-1] < 4.0


def test_sglang() -> None:
    record = only("sglang", prefill(3, 9))
    assert record[:4] == ("prefill", "2026-02-03 04:05:06", 3, 9) and not record.unsure
    assert (record.prompt_throughput, record.kv_usage) == (901.5, 0.21)
    record = only("sglang", "web-1  | [2026-02-03 05:05:08] " + decode(4, 1, label=" DP1 TP3"))
    assert record[:5] == ("decode", "2026-02-03 04:05:08", 4, 1, 1) and record.member == "DP1 TP3" and record.unsure
    assert only("sglang", prefill(3, 9).replace("batch,", "batch [17],"))[2:4] == (3, 9)
    hybrid = "[2026-07-04 05:01:33 TP0] Decode batch, #running-req: 2, #full token: 3, full token usage: 0.74, swa " \
        "token usage: 0.11, mamba usage: 0.80, gen throughput (token/s): 155.34, #queue-req: 6, "
    assert only("sglang", hybrid)[2:4] == (2, 6) and only("sglang", hybrid).kv_usage == 0.74
    for text in ("KV cache pool is full. Retract requests. ", "decode out of memory happened, "):
        assert only("sglang", f"{text}#retracted_reqs: 3, #new_token_ratio: 0.1 -> 0.2").preempted == 3


def test_retractions_are_counted(tmp_path: Path) -> None:
    lost = "[2026-02-03 04:05:07] KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_tokens_gained: 9"
    found = read(tmp_path, "\n".join([prefill(1, 0), lost, decode(5, 2), lost, decode(4, 3)]) + "\n")
    assert found.column("preemptions") == [None, 2, 2, 4, 4]
    assert found.column("kind") == ["prefill", "retract", "decode", "retract", "decode"]


def test_mistralrs(tmp_path: Path) -> None:
    record = only("mistralrs", mistralrs(12, 34))
    assert record[:4] == ("interval", "2026-01-02T03:04:05.678901Z", 12, 34)
    assert (record.generation_throughput, record.hit_rate) == pytest.approx((44.2, 1 / 3), abs=1e-4)
    bare = "2026-01-02T03:04:05.678901Z  INFO x: Throughput (T/s) 1.00, 1 running, 2 waiting"
    assert only("mistralrs", bare)[2:4] == (1, 2)
    steps = "2024-05-06T01:02:03.500000Z DEBUG mistralrs_core::engine: Prompt[15, 20] Completion[99] - 250ms"
    run = read(tmp_path, steps + "\n").run
    names = ("running", "prefill_seqs", "decode_seqs", "prefill_tokens")
    assert [run.column(name)[0] for name in names] == [3, 2, 1, 35]
    assert run.step_seconds()[0] == 0.25


def test_lmdeploy() -> None:
    """Its two queues are kept apart, and their sum is what waits."""
    record = only("lmdeploy", lmdeploy(45, 5, 50))
    assert (record.running, record.waiting, record.outside, record.rank) == (45, 5, 50, 0)
    assert record.kv_usage == pytest.approx(0.085) and isnan(record.hit_rate)
    server = lmdeploy(1, 2, 3).replace("Server (succeeded/failed/routed/waiting): 9 / 1 / 3 / 3", "API server "
                                       "(completed/routed/waiting): 9 / 3 / 3")
    assert only("lmdeploy", server)[2:4] == (1, 2) and only("lmdeploy", server).outside == 3


def test_lmdeploys_shape_of_2025_is_not_taken_for_vllms(tmp_path: Path) -> None:
    line = "[2025-05-05 01:02:03] Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, " \
        "Running: 3 reqs, Waiting: 4 reqs, GPU KV cache usage: 5.0%, "
    found = read(tmp_path, f"{line}\n" * 3)
    assert found.report.format == "lmdeploy" and found.counts() == [(3, 4)] * 3
    assert records("lmdeploy", vllm(3, 4)) is None


def test_tensorrt(tmp_path: Path) -> None:
    found = read(tmp_path, triton(4, 9, paused=2) + "\n")
    assert found.counts() == [(4, 5)] and found.column("paused") == [2]
    assert found.column("kv_usage") == pytest.approx([2 / 3])
    assert found.run.meta["clock_start"] == "2025-06-07T08:09:10.123456+00:00"
    assert found.run.column("kv_used").tolist() == [60] and found.run.column("waiting").tolist() == [5]
    quoted = '"' + triton(2, 2).split("] ")[1].replace('"', '\\"') + '"'
    assert only("tensorrt", f"[TensorRT-LLM][INFO] {quoted}")[1:4] == ("06-07-2025 08:09:10", 2, 0)


def test_tensorrts_pytorch_back_end() -> None:
    """Generated tokens count padding; requests do not."""
    record = only("tensorrt", pytorch(10))
    assert record[1:4] == ("2026-03-04 05:06:07", 10, None) and record.step is not None
    assert record.step.seconds == pytest.approx(0.0123456789)
    assert record.step.counts["forward_width"] == 10 and record.step.counts["prefill_tokens"] == 96
    newer = pytorch(10, ", num_active = 14, num_fetched = 3, num_dummy = 1, num_unscheduled = 5")
    assert only("tensorrt", newer)[2:4] == (9, 5)
    newest = "[RANK 0] iter = 3, global_rank = 0, rank = 0, host_step_time = 5.5ms, prev_device_step_time = N/A, " \
        "num_scheduled_requests = 2, kv_cache_util = 0.100, states = {'num_ctx_requests': 0}"
    last = only("tensorrt", newest)
    assert last.running == 2 and last.kv_usage == 0.1 and last.step is not None and last.step.seconds == 0.0055


def test_tensorrts_executor_statistics() -> None:
    told = {
        "iter": 3, "iterLatencyMS": 12.5, "numActiveRequests": 9, "numQueuedRequests": 4,
        "timestamp": "04-07-2025 20:33:17.747028", "kvCacheStats": {"usedNumBlocks": 5, "maxNumBlocks": 20},
        "inflightBatchingStats": {"numScheduledRequests": 9, "numContextRequests": 2, "numGenRequests": 7,
                                  "numPausedRequests": 1, "numCtxTokens": 30},
    }
    found = records("tensorrt", json.dumps([told, told]))
    assert found is not None and len(found) == 2
    assert found[0][1:4] == ("04-07-2025 20:33:17.747028", 9, 4) and found[0].paused == 1 and found[0].kv_usage == 0.25


def test_tgi_counts_are_rebuilt(tmp_path: Path) -> None:
    """The first arrives at 0 s and starts at 0.2, the second at 0.5 and starts when the first has ended."""
    lines = [
        tgi("2026-03-03T10:00:01.200000Z", "1.2s", "100ms", "100000µs"),
        tgi("2026-03-03T10:00:02.200000Z", "1.7s", "100ms", "600ms"),
    ]
    found = read(tmp_path, "\n".join(lines) + "\n")
    assert found.counts() == [(0, 1), (1, 0), (1, 1), (1, 0), (0, 0)]
    assert found.column("time") == pytest.approx([0, 0.2, 0.5, 1.2, 2.2])
    run = found.run
    assert run.request_column("finish") - run.request_column("arrival") == pytest.approx([1.2, 1.7])
    assert run.request_column("first_scheduled") == pytest.approx([0.2, 1.2])
    assert run.request_column("output_tokens").tolist() == [20, 20]


def test_a_tgi_line_without_a_clock_tells_of_a_request_but_of_no_counts(tmp_path: Path) -> None:
    found = read(tmp_path, tgi("", "1.5s", "10us", "20ns") + "\n")
    assert found.report.samples == 0 and found.report.requests == 1
    assert found.run.request_column("finish")[0] == 1.5


def test_llamacpp_counts_are_launches_less_releases(tmp_path: Path) -> None:
    lines = [
        release(3), launch(0), launch(1, "1.00.000.500 I "), "srv  update_slots: some other thing",
        release(0, "1.02.000.000 I "), "srv  update_slots: all slots are idle",
    ]
    found = read(tmp_path, "\n".join(lines) + "\n")
    assert found.counts() == [(0, None), (1, None), (2, None), (1, None), (0, None)]
    assert found.report.matched == 5
    assert only("llamacpp", "slot 0 is processing [task id: 812]").running == 1
    later = 'INFO [launch_slot] slot is processing task | tid="1" timestamp=1715000000 id_slot=2 id_task=3'
    assert only("llamacpp", later)[:3] == ("request", "1715000000", 1)
    full = "update_slots : failed to find free space in the KV cache, retrying with smaller n_batch = 256, slot"
    assert only("llamacpp", full).kind == "full"
