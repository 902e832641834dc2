"""`arcsim calibrate` on a tiny model: from the command line to a latency file that `simulate` takes."""

from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import yaml

torch = pytest.importorskip("torch", reason="the executor needs torch: pip install 'arcsim[executor]'")
pytest.importorskip("transformers", reason="the executor needs transformers: pip install 'arcsim[executor]'")

from arcsim.executor.backend import MeasuredBackend
from arcsim.executor.clock import ticker
from arcsim.executor.errors import ExecutorError
from arcsim.executor.inputs import Inputs
from arcsim.experiment.calibration_design import Point
from arcsim.experiment.calibration_steps import step_of
from arcsim.experiment.fit import step_columns
from arcsim.sim.latency.affine import Affine
from arcsim.sim.latency.config import load_latency_file
from arcsim.sim.latency.table import TableConfig
from arcsim.sim.measured import measured_steps
from arcsim.sim.table_fit import predict
from arcsim.traces.run import Run

from .command import Left, arcsim, refused, written
from .executing import config_file, tiny

SMALL = """\
name: small
workload: {kind: synthetic, count: 3, prompt: {spread: [5, 20], distinct: 3}, output: 6, arrivals: at_once}
engine: {block_size: 16, num_blocks: 40}
policy: continuous
"""


def calibrate(folder: Path, *more: object, model: object = None) -> Left:
    return arcsim(
        "calibrate", "--model", model or config_file("llama"), "--out", folder / "latency.yaml", "--dtype", "float32",
        "--device", "cpu", "--rows", 4, "--tokens", 32, "--context", 64, "--repeats", 3, "--block-size", 4, *more,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibration")
    left = calibrate(folder, "--json", "--clock", "cpu", "--threads", 1)
    assert left.code == 0, left
    (folder / "said.json").write_text(left.out)
    return folder


def test_the_file_tells_what_was_measured_and_how_well_it_fits(folder: Path) -> None:
    record = yaml.safe_load((folder / "latency.yaml").read_text())["fitted"]
    ran = record["measured_on"]
    assert ran["torch"] == torch.__version__ and ran["device"] == "cpu" and ran["dtype"] == "float32"
    assert ran["attention"] in ("cpp", "reference") and ran["clock"] == "cpu" and ran["threads"] == 1
    assert record["measurements"] % 3 == 0 and "3 times each" in record["source"]
    for regions in (record["cross_validated"], record["cross_validated_others"]["affine"]):
        assert {"decode, 1 row", "prefill", "mixed", "all"} <= set(regions)
    assert record["repeat_spread"]["worst"] >= record["repeat_spread"]["median"] > 0


def test_simulate_takes_the_file(folder: Path) -> None:
    config = written(folder, SMALL)
    left = arcsim("simulate", "-c", config, "-o", folder / "run", "--set", f"latency={folder}/latency.yaml")
    assert left.code == 0, left
    table, run = load_latency_file(folder / "latency.yaml"), Run.load(folder / "run")
    assert isinstance(table, TableConfig) and run.meta["config"]["latency"] == table.model_dump()
    measured = measured_steps([step_columns(run)])
    assert measured.seconds == pytest.approx(predict(table, measured), abs=1e-8)


def test_json_is_for_machines(folder: Path) -> None:
    said = yaml.safe_load((folder / "said.json").read_text())
    assert said["fits"]["table"]["kind"] == "table" and said["fits"]["affine"]["cross_validated"]["all"]["steps"] > 50
    assert said["file"].endswith("latency.yaml") and said["measured_on"]["model"] == "llama"


def test_affine_on_demand_and_in_words(tmp_path: Path) -> None:
    left = calibrate(tmp_path, "--latency", "affine")
    assert left.code == 0, left
    assert isinstance(load_latency_file(tmp_path / "latency.yaml"), Affine)
    assert "table on steps left out of its fit" in left.out and "decode_step: " in left.out
    assert "clock: wall" in left.out and "attention: " in left.out


@pytest.mark.parametrize(("more", "said"), [
    (("--latency", "roofline"), "--latency roofline: no such latency model to fit"),
    (("--clock", "sun"), "--clock sun: wall, or cpu"),
    (("--rows", "0"), "--rows 0: at least 1"),
    (("--attention", "none"), "no attention backend 'none'"),
    (("--attention", "flash_attn"), "flash_attn"),
])
def test_what_cannot_be_calibrated_is_told_before_anything_is_written(
    tmp_path: Path, more: tuple[str, str], said: str
) -> None:
    assert said in refused(calibrate(tmp_path, *more)) and not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("arcsim.experiment.calibrate.load", lambda *_, **__: pytest.fail("it was loaded"))
    written(tmp_path, "mine", "file")
    for out, said in ((tmp_path, "is a folder: name a file"), (tmp_path / "file" / "x", "file is a file; name")):
        assert said in refused(calibrate(tmp_path, "--out", out))


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    assert "'smollm' is neither a known model" in refused(calibrate(tmp_path, model="smollm"))


def test_the_cpu_clock_does_not_count_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that sleeps for 0.2 s took 0.2 s on the wall, and next to nothing of the thread's own seconds."""
    seconds = {}
    for clock in ("wall", "cpu"):
        backend = MeasuredBackend(tiny("llama"), blocks=8, block_size=16, clock=clock)
        plain = backend.runner.logits

        def late(inputs: Inputs, plain: Callable[[Inputs], Any] = plain) -> Any:
            sleep(0.2)
            return plain(inputs)

        monkeypatch.setattr(backend.runner, "logits", late)
        backend.launch(step_of(Point(decode=2, context=8), 16))
        seconds[clock] = backend.collect().seconds
    assert seconds["cpu"] < 0.1 < 0.2 < seconds["wall"]


def test_the_cpu_clock_knows_where_it_cannot_count(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ExecutorError, match="clock cpu counts the seconds of a CPU thread, the model runs on cuda:0"):
        ticker("cpu", torch.device("cuda:0"))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(ExecutorError, match="one thread, torch has 2: say --threads 1"):
        ticker("cpu", torch.device("cpu"))
