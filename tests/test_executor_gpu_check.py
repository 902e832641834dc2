"""The GPU check's dry run: everything that it does on a GPU, on the CPU with a tiny model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor needs torch: pip install 'arcsim[executor]'")
pytest.importorskip("transformers", reason="the executor needs transformers: pip install 'arcsim[executor]'")

SCRIPT = Path(__file__).resolve().parent.parent / "bench" / "gpu_check.sh"


def test_the_dry_run_passes(tmp_path: Path) -> None:
    done = subprocess.run(
        [SCRIPT, "--dry-run", "--out", tmp_path], env=os.environ | {"PYTHON": sys.executable}, capture_output=True,
        text=True, check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "gpu_check_dry.json").read_text())
    assert found["problems"] == [] and (tmp_path / "gpu_check_dry.md").read_text() == done.stdout
    right = {each["backend"]: each.get("right") for each in found["correctness"]}
    assert right["reference"] and right.keys() == {"reference", "cpp", "torch_varlen", "flashinfer", "flash_attn"}
    assert {(each["kind"], each["shape"]) for each in found["speed"]} >= {("decode", "4 x 32"), ("prefill", "32")}
    assert len(found["ab"]) == 8 and all(each["identical"] for each in found["ab"])
    [bucketed] = [each for each in found["ab"] if each["run"] == "prompt=spread_8_40_4_count=4/bucketed"]
    assert bucketed["forward_width"] == 1.0
