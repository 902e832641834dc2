"""From a configuration to its parts and runs, and what a run notices."""

from pathlib import Path
from typing import Any

import pytest

from arcsim.experiment.document import parse
from arcsim.experiment.jobs import jobs_of, run_jobs
from arcsim.experiment.parts import Parts, build_parts
from arcsim.experiment.plan import Plan, plan
from arcsim.experiment.simulate import simulate
from arcsim.sim.latency.affine import Affine
from arcsim.traces.run import Run

from .command import POLICY, SMALL, TWO, arcsim, refused, written


def planned(text: str, *sets: str, folder: Path = Path()) -> Plan:
    return plan(parse(text.encode(), "small.yaml", folder, "small"), sets)


def parts_of(text: str, *sets: str, folder: Path = Path()) -> Parts:
    [config] = planned(text, *sets, folder=folder).cells[0].configs.values()
    return build_parts(config)


def run_of(text: str, *sets: str, folder: Path = Path(), **options: Any) -> Run:
    [config] = planned(text, *sets, folder=folder).cells[0].configs.values()
    return simulate(config, **options)


def test_the_policys_own_defaults_fill_what_is_left_out() -> None:
    engine = parts_of(SMALL, "policy=mistralrs_paged", "engine={num_blocks: 50}").policy.engine
    assert (engine.block_size, engine.max_num_seqs, engine.num_blocks) == (32, 32, 50)
    engine = parts_of(SMALL, "engine={num_blocks: 50}").policy.engine
    assert (engine.block_size, engine.max_num_seqs, engine.max_num_batched_tokens) == (16, 256, 2048)


def test_null_takes_a_limit_away() -> None:
    assert parts_of(SMALL, "engine.max_num_batched_tokens=null").policy.engine.max_num_batched_tokens is None


def test_a_key_that_the_policy_does_not_heed_is_noted() -> None:
    parts = parts_of(SMALL, "policy=mistralrs_paged")
    assert "engine.max_num_batched_tokens is not heeded by mistralrs_paged" in parts.notes
    assert parts.policy.engine.max_num_batched_tokens is None


def test_auto_is_what_fits_beside_the_model() -> None:
    text = SMALL.replace("num_blocks: 100", "num_blocks: auto") + "model: llama-3.1-8b\nhardware: h100\n"
    parts = parts_of(text)
    blocks = parts.policy.engine.num_blocks
    pool = blocks * 16 * 128 * 1024  # bytes: 128 KiB of KV per token
    assert 0.7 * 79e9 < pool + 2 * 8.03e9 < 0.9 * 79.18 * 2**30
    assert any(note.startswith(f"KV pool: {blocks:,} blocks") for note in parts.notes)
    half = parts_of(text, "engine.gpu_memory_utilization=0.45").policy.engine.num_blocks
    assert half < 0.5 * blocks


def test_the_models_context_is_the_longest_request() -> None:
    assert parts_of(SMALL + "model: llama-2-7b\n").policy.engine.max_model_len == 4096
    run = run_of(SMALL + "model: llama-2-7b\n", "workload.prompt={fixed: 5000}", "engine.num_blocks=1000")
    assert run.meta["notes"] == [
        "4 of 4 requests rejected, the first r0: prompt 5000 + max_tokens 5 exceeds max_model_len 4096"
    ]


def test_the_seed_of_the_experiment_is_the_workloads_unless_it_has_its_own() -> None:
    text = SMALL.replace("prompt: {fixed: 20}", "prompt: {uniform: [1, 50]}")
    prompts = [run_of(text, *sets).request_column("prompt_tokens").tolist() for sets in (
        (), ("seed=5",), ("workload.seed=5",), ("seed=5", "workload.seed=0"),
    )]
    assert prompts[1] == prompts[2] != prompts[0] == prompts[3]


def test_without_a_latency_model_there_is_the_roofline() -> None:
    text = "\n".join(line for line in SMALL.splitlines() if not line.startswith("latency")) + "\n"
    assert parts_of(text + "model: llama-3.1-8b\nhardware: h100\n").latency.describe()["kind"] == "roofline"


def test_a_latency_file_lies_beside_the_experiment(tmp_path: Path) -> None:
    written(tmp_path, "kind: affine\ndecode_step: 3ms\n", "fitted.yaml")
    text = SMALL.replace("{kind: affine, decode_step: 1ms, prefill_step: 2ms, row: 0.1ms}", "fitted.yaml")
    assert parts_of(text, folder=tmp_path).latency == Affine(decode_step=3e-3)


def test_a_policys_file_lies_beside_what_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "beside", POLICY, "mine.py")
    parts = parts_of(SMALL.replace("continuous", "mine.py:Mine"), folder=tmp_path / "beside")
    assert type(parts.policy).__name__ == "Mine" and parts.resolved["policy"]["name"] == "mine.py:Mine"
    monkeypatch.chdir(tmp_path)
    assert type(parts_of(SMALL, "policy=beside/mine.py:Mine").policy).__name__ == "Mine"


def test_seconds_are_those_of_the_latency_model() -> None:
    """A step of 4 prompts of 16 tokens each, ... counted by hand: the budget of 64 tokens cuts the prompts of 20."""
    run = run_of(SMALL)
    assert run.column("prefill_tokens").tolist() == [64, 16, 0, 0, 0, 0]
    expected = [2.4, 2.4, 1.4, 1.4, 1.4, 1.1]  # ms: 2 with prefill, else 1, and 0.1 for each of its rows
    assert (1e3 * run.step_seconds()).tolist() == pytest.approx(expected)


def test_progress_is_told_with_every_request_that_ends() -> None:
    heard: list[tuple[int, int, float]] = []
    run_of(SMALL, progress=lambda *told: heard.append(told))
    assert [told[:2] for told in heard] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [told[2] for told in heard] == pytest.approx([9.0e-3] * 3 + [10.1e-3])


def test_every_variant_runs_in_every_cell_in_order() -> None:
    experiment = planned(TWO + "sweep: {workload.count: [1, 2], workload.output: [3, 4]}\n")
    jobs = jobs_of(experiment)
    assert [job.origin for job in jobs[:3]] == [
        "small / count=1 output=3 / plain", "small / count=1 output=3 / first", "small / count=1 output=4 / plain",
    ]
    done: list[str] = []
    runs = run_jobs(jobs, workers=1, audit=True, done=lambda job: done.append(job.origin))
    assert list(runs) == [(place, variant) for place in range(4) for variant in ("plain", "first")]
    assert [run.requests.num_rows for run in runs.values()] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert done == [job.origin for job in jobs]


def test_long_experiments_go_to_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the first run says that it pays; whatever comes back is put into order."""
    spread: list[str] = []

    def backwards(work: Any, jobs: Any, count: int) -> Any:
        spread.extend(job.origin for job in jobs)
        return ((job, work(job)) for job in reversed(jobs))

    monkeypatch.setattr("arcsim.experiment.jobs.spread", backwards)
    jobs = jobs_of(planned(TWO + "sweep: {workload.count: [1, 2]}\n"))
    assert list(run_jobs(jobs, workers=None, audit=False)) == [job.key for job in jobs] and not spread
    monkeypatch.setattr("arcsim.experiment.jobs.LONG", 0.0)
    assert list(run_jobs(jobs, workers=None, audit=False)) == [job.key for job in jobs]
    assert spread == [job.origin for job in jobs[1:]]


def test_rare_events_are_noted_but_not_all_of_them(tmp_path: Path) -> None:
    written(tmp_path, POLICY.replace("admitted=admitted", "admitted=admitted, events=['rare']"), "mine.py")
    text = SMALL.replace("continuous", "mine.py:Mine").replace("output: 5", "output: 30")
    notes = run_of(text, folder=tmp_path).meta["notes"]
    assert notes == [*(f"step {step}: rare" for step in range(20)), "and 10 more such events"]


def test_what_is_wrong_in_the_last_variant_is_told_before_the_first_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[object] = []
    monkeypatch.setattr("arcsim.experiment.jobs.simulate", lambda *given, **_: ran.append(given))
    config = written(tmp_path, SMALL + "variants: {a: {}, b: {policy.victim: lastt}}\n")
    assert "policy.victim" in refused(arcsim("simulate", "-c", config, "-o", tmp_path / "out")) and not ran
