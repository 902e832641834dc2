"""The bundled hour of real conversations: a part of it, every request accounted for."""

from pathlib import Path

import pytest

from arcsim.traces.run import Run

from .command import arcsim

TRACE = "data/traces/azure_llm_2023/AzureLLMInferenceTrace_conv.csv"


@pytest.mark.parametrize("sets", [
    (), ("engine.num_blocks=300", "workload.rate=x20", "policy.victim=first"),
    ("engine={num_blocks: 300}", "workload.rate=x20", "policy=mistralrs_paged"),
])
def test_a_part_of_it_is_served_under_audit(shared: Path, tmp_path: Path, sets: tuple[str, ...]) -> None:
    """With memory ample and tight, by either scheduler; that of mistral.rs drops who waited for 64 passes."""
    options = [part for text in sets for part in ("--set", text)]
    left = arcsim("simulate", "-c", "azure_conv", "--set", f"workload.path={shared / TRACE}", "--set",
                  "workload.limit=100", *options, "-o", tmp_path / "out", "--audit", "--json")
    assert left.code == 0 and left.err == ""
    [summary] = left.json["cells"][0]["variants"].values()
    assert summary["outcome"] == "completed" and summary["requests"].keys() <= {"finished", "rejected"}
    assert summary["requests"]["finished"] > 90 and sum(summary["requests"].values()) == 100
    assert bool(summary["preemptions"]) == bool(sets)
    run = Run.load(tmp_path / "out")
    assert run.column("finished").sum() + run.column("rejected").sum() == run.column("arrived").sum() == 100
    assert run.column("sampled_tokens").sum() == run.request_column("output_tokens").sum()


def test_a_larger_part(shared: Path, tmp_path: Path) -> None:
    """The first thousand come in three minutes, and nobody waits for long."""
    left = arcsim("simulate", "-c", "azure_conv", "--set", f"workload.path={shared / TRACE}", "--set",
                  "workload.limit=1000", "-o", tmp_path / "out", "--json")
    [summary] = left.json["cells"][0]["variants"].values()
    assert summary["requests"] == {"finished": 1000}
    assert summary["running"]["mean"] == summary["forward_width"]["mean"] and summary["queue"]["p99"] < 0.2
    assert 3e-3 < summary["tpot"]["p50"] < 15e-3  # 15 GiB of weights at 4.8 TB/s take 3.3 ms
