"""`bench/fidelity_cpu.py` from its command to its table, on a tiny model."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch", reason="the executor needs torch: pip install 'arcsim[executor]'")
pytest.importorskip("transformers", reason="the executor needs transformers: pip install 'arcsim[executor]'")

from arcsim.traces.rows import run_from_rows

from .command import arcsim
from .executing import config_file

SCRIPT = Path(__file__).resolve().parent.parent / "bench" / "fidelity_cpu.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Its commands run in this process."""
    spec = spec_from_file_location("fidelity_cpu", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fidelity_cpu", module)  # dataclasses look there
    spec.loader.exec_module(module)

    def inside(*arguments: object) -> None:
        left = arcsim(*arguments)
        assert left.code == 0, left

    monkeypatch.setattr(module, "arcsim", inside)
    return module


def test_one_command_gives_the_table(script: ModuleType, shared: Path, tmp_path: Path) -> None:
    out, latency = tmp_path / "fidelity.md", tmp_path / "latency.yaml"
    latency.write_text("kind: table\ndecode: {rows: [1], seconds: [1ms]}\nprefill: {tokens: [1], seconds: [1ms]}\n")
    script.main([
        "--folder", str(tmp_path / "runs"), "--out", str(out), "--model", str(config_file("llama")), "--limit", "3",
        "--trace", str(shared / script.TRACE), "--latency", str(latency),
    ])
    text = out.read_text()
    assert text.count("| mean running |") == text.count("The ") - 1 == len(script.RATES)
    assert "llama (bfloat16, random weights) on one thread of " in text
    assert "3 requests with lengths of the Azure" in text


def test_means_are_over_the_whole_time(script: ModuleType) -> None:
    """Two for a second, then nobody for a second, then one for two."""
    run = run_from_rows(
        [{"t_start": 1.0, "t_end": 2.0, "running": 2}, {"t_start": 3.0, "t_end": 5.0, "running": 1, "running_end": 1}],
        [{"arrival": 1.0}],
    )
    assert script.mean_gauge("running")(run) == pytest.approx((2 + 0 + 2) / 4) and script.busy(run) == 0.75
    assert (script.relative(1.05, 1.0), script.relative(0.01, 0.0)) == ("+5.0 %", "+0.010")
