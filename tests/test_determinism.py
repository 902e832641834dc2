"""The same configuration and seed give the same files to the byte, in any process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from arcsim.policies.find import known_policies
from arcsim.traces.run import Run

EXPERIMENT = """\
name: twice
workload:
  kind: synthetic
  count: 40
  prompt: {spread: [40, 90], distinct: 4}
  output: {uniform: [5, 60]}
  arrivals: {poisson: 60}
  prefix: {tokens: 35, groups: 3, order: random}
  priority: [1, 0, 2]
  seed: 7
engine: {block_size: 8, num_blocks: 70, max_num_seqs: 12}
latency: {kind: affine, decode_step: 2.9ms, prefill_step: 4.95ms, padded_prefill_token: 16.1us, row: 0.639ms}
variants:
"""
"""Shared beginnings, a prefix cache (each policy's default), and a pool that makes all of them preempt."""


def simulate(folder: Path, seed: str) -> Path:
    out = folder / f"out{seed}"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-m", "arcsim", "simulate", "--config", "twice.yaml", "--out", out.name, "--quiet"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("twice")
    variants = "".join(f"  {name}: {{policy: {name}}}\n" for name in known_policies())
    (folder / "twice.yaml").write_text(EXPERIMENT + variants, encoding="utf-8")
    return simulate(folder, "0"), simulate(folder, "4242")


@pytest.mark.parametrize("policy", known_policies())
def test_two_processes_write_the_same_bytes(policy: str, pair: tuple[Path, Path]) -> None:
    """Under another seed of Python's own hashes. (Mutation tried: the victim is picked by the hash of its name.)"""
    one, other = (next(path for path in out.rglob(policy) if (path / "run.json").is_file()) for out in pair)
    names = sorted(path.name for path in one.iterdir())
    assert {"run.json", "steps.parquet", "requests.parquet"} <= set(names)
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    run = Run.load(one)
    lacks = {"mistralrs_dense": ("waiting",), "sglang": ("cached_tokens",)}  # no cache; nobody is retracted here
    busy = lacks.get(policy, ("cached_tokens", "preempted"))
    assert all(run.column(name).sum() > 0 for name in busy)
    assert run.outcome == "completed" and run.meta["seed"] == 7
