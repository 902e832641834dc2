"""What a policy cannot do is refused before the run, with the reason and the policy that can."""

import json
from pathlib import Path
from typing import Any

import pytest

from arcsim.experiment.document import parse
from arcsim.experiment.errors import UserError
from arcsim.experiment.parts import build_parts
from arcsim.experiment.plan import plan
from arcsim.experiment.simulate import simulate
from arcsim.models.shape import HERE

WORKLOAD = "workload: {kind: synthetic, count: 4, prompt: {spread: [20, 80], distinct: 4}, output: 8}\n"
COST = "latency: {kind: affine, decode_step: 1ms, prefill_step: 1ms}\nengine: {num_blocks: 100}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a model that cannot page."""
    config: dict[str, Any] = json.loads((HERE / "qwen2.5-0.5b.json").read_text())
    (tmp_path / "dense").mkdir()
    (tmp_path / "dense" / "config.json").write_text(json.dumps(config | {"supports_paged_attention": False}))
    return tmp_path


def only_config(text: str, folder: Path) -> Any:
    planned = plan(parse((WORKLOAD + COST + text).encode(), "mine.yaml", folder, "mine"), [])
    return next(iter(planned.cells[0].configs.values()))


@pytest.mark.parametrize("policy", ["continuous", "mistralrs_paged", "vllm"])
def test_a_paged_policy_on_a_model_that_cannot_page(policy: str, folder: Path) -> None:
    with pytest.raises(UserError, match=rf"mine.yaml:\d+: policy: {policy} pages its KV.*choose mistralrs_dense"):
        build_parts(only_config(f"model: dense\npolicy: {policy}\n", folder))


def test_the_dense_policy_runs_it(folder: Path) -> None:
    run = simulate(only_config("model: dense\npolicy: mistralrs_dense\n", folder), audit=True)
    assert run.meta["outcome"] == "completed"
    assert "ragged admission: refused" in " ".join(run.meta["notes"])


@pytest.mark.parametrize("policy", ["continuous", "mistralrs_paged", "vllm"])
def test_speculation_on_a_paged_policy(policy: str, folder: Path) -> None:
    text = f"policy: {{name: {policy}, speculative: {{tokens: 3, acceptance: 0.7}}}}\n"
    with pytest.raises(UserError, match="policy.speculative: .* one token a decode row.* mistralrs_dense only"):
        build_parts(only_config(text, folder))


def test_speculation_on_the_dense_policy(folder: Path) -> None:
    options = "version: 0.9.5, speculative: {tokens: 3, acceptance: 1}"
    run = simulate(only_config(f"policy: {{name: mistralrs_dense, {options}}}\n", folder), audit=True)
    assert run.meta["outcome"] == "completed"
    assert run.column("decode_tokens").sum() > run.column("decode_seqs").sum()
    assert run.column("sampled_tokens").sum() == 4 * 8


@pytest.mark.parametrize("given", ["{tokens: 0, acceptance: 0.5}", "{tokens: 2, acceptance: 1.5}", "{tokens: 2}"])
def test_an_impossible_speculation(given: str, folder: Path) -> None:
    with pytest.raises(UserError, match=r"mine.yaml:\d+: policy.speculative"):
        build_parts(only_config(f"policy: {{name: mistralrs_dense, speculative: {given}}}\n", folder))
