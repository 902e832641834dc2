"""The folder of an experiment: what lies in it, that it is whole or not there, and that nobody else's files go."""

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from arcsim.experiment.errors import UserError
from arcsim.experiment.run_folders import load_run, run_folders
from arcsim.experiment.target import check_target
from arcsim.traces.run import Run

from .command import SMALL, TWO, arcsim, refused, written


def hashes(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}


def ran(folder: Path, text: str = SMALL, *more: object, out: str = "out") -> Path:
    assert arcsim("simulate", "-c", written(folder, text), "-o", folder / out, "-q", *more).code == 0
    return folder / out


def test_the_only_run_lies_at_the_top(tmp_path: Path) -> None:
    assert set(hashes(ran(tmp_path))) == {
        "experiment.json", "report.html", "requests.parquet", "run.json", "steps.parquet",
    }
    assert Run.load(tmp_path / "out").meta["origin"] == "small / continuous"


def test_cells_and_variants_are_folders(tmp_path: Path) -> None:
    out = ran(tmp_path, TWO + "sweep: {workload.count: [1, 2]}\n")
    folders = [out / f"count={count}" / variant for count in (1, 2) for variant in ("first", "plain")]
    assert run_folders(out) == folders and run_folders(out / "count=1") == folders[:2]
    assert run_folders(folders[0]) == [folders[0]]
    assert [load_run(folder).requests.num_rows for folder in folders] == [1, 1, 2, 2]
    assert load_run(folders[3]).meta["origin"] == "small / count=2 / plain"


def test_the_record_says_how_it_was_run(tmp_path: Path) -> None:
    meta = Run.load(ran(tmp_path, SMALL + "seed: 7\n")).meta
    assert meta["config"]["engine"] == {
        "block_size": 16, "num_blocks": 100, "max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": None,
        "empty_step": 1e-3,
    }
    assert meta["config"]["latency"]["decode_step"] == 1e-3 and meta["config"]["policy"]["victim"] == "last"
    assert meta["seed"] == 7 and meta["arm"] == "simulated" and meta["outcome"] == "completed"
    assert {"arcsim", "python", "simpy"} <= set(meta["versions"])


def test_the_report_opens_offline_and_names_every_variant(tmp_path: Path) -> None:
    page = (ran(tmp_path, TWO) / "report.html").read_text()
    assert "plain" in page and "first" in page and '<script src="http' not in page


def test_a_former_result_is_replaced_whole(tmp_path: Path) -> None:
    ran(tmp_path, TWO)
    ran(tmp_path)
    assert "plain/run.json" not in hashes(tmp_path / "out") and sorted(os.listdir(tmp_path)) == ["out", "small.yaml"]


def test_the_same_experiment_leaves_the_same_bytes(tmp_path: Path) -> None:
    assert hashes(ran(tmp_path, TWO, out="a")) == hashes(ran(tmp_path, TWO, out="b"))


@pytest.mark.parametrize("place", ["notes.txt", "deep/er/notes.txt"])
def test_other_peoples_files_are_not_replaced(tmp_path: Path, place: str) -> None:
    """Neither in a folder of theirs, nor beside the results of a former run."""
    written(tmp_path / "theirs", "mine", place)
    written(ran(tmp_path), "mine", place)
    for folder in ("theirs", "out"):
        before = hashes(tmp_path / folder)
        message = refused(arcsim("simulate", "-c", tmp_path / "small.yaml", "-o", tmp_path / folder))
        assert message == f"{tmp_path / folder} holds other files ({place}): name another folder with --out"
        assert hashes(tmp_path / folder) == before


def test_a_target_is_refused_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arcsim.experiment.jobs.run_jobs", lambda *_, **__: pytest.fail("it ran"))
    config = written(tmp_path, SMALL)
    message = refused(arcsim("simulate", "-c", config, "-o", config))
    assert message == f"{config} is a file: name another folder with --out"
    message = refused(arcsim("simulate", "-c", config, "-o", config / "out"))
    assert message == f"cannot write {config / 'out'}: {config} is a file; name another folder with --out"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_place_where_nobody_may_write_is_found_out() -> None:
    """Permission bits would let root try."""
    with pytest.raises(UserError, match="^cannot write /proc/out: .* in /proc; name another folder with --out$"):
        check_target(Path("/proc/out"))


def test_looking_at_a_target_leaves_nothing(tmp_path: Path) -> None:
    check_target(tmp_path / "deep" / "out")
    assert os.listdir(tmp_path) == []


FULL = """
import resource, sys
from arcsim.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
main(["simulate", "-c", sys.argv[2], "-o", sys.argv[3]])
"""


def test_a_full_disk_leaves_the_former_result_whole(tmp_path: Path) -> None:
    """The write that fails is that of the report, the last: no file may have more than 50,000 bytes."""
    out = ran(tmp_path)
    before = hashes(out)
    command = [sys.executable, "-c", FULL, "50000", str(tmp_path / "small.yaml"), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: cannot write {out}: ") and done.stderr.count("\n") == 1
    assert hashes(out) == before and sorted(os.listdir(tmp_path)) == ["out", "small.yaml"]


def test_what_was_measured_is_in_the_record(tmp_path: Path) -> None:
    out = ran(tmp_path, TWO + "expect: ['makespan(plain) <= makespan(first)']\n")
    record = json.loads((out / "experiment.json").read_text())
    [finding] = record["findings"]
    assert record["verdict"] == "CONFIRMED" and finding["outcome"] == "holds"
    makespans = [record["cells"][0]["variants"][name]["makespan"] for name in ("plain", "first")]
    assert finding["values"] == pytest.approx(makespans)


def test_files_of_a_user_are_refused_wherever_they_lie(tmp_path: Path) -> None:
    """Also where they are called as arcsim's own are; and another experiment is not a part of this one."""
    out = tmp_path / "out"
    assert arcsim("simulate", "-c", written(tmp_path, TWO), "-o", out).code == 0
    (out / "mine").mkdir()
    (out / "mine" / "report.html").write_text("x")
    assert "mine" in refused(arcsim("simulate", "-c", tmp_path / "small.yaml", "-o", out))
    (out / "mine" / "report.html").unlink()
    (out / "mine").rmdir()
    assert arcsim("simulate", "-c", tmp_path / "small.yaml", "-o", out / "nested").code == 0
    assert "nested" in refused(arcsim("simulate", "-c", tmp_path / "small.yaml", "-o", out))
    assert (out / "nested" / "report.html").is_file()


def test_the_working_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, SMALL)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert "holds the working folder" in refused(arcsim("simulate", "-c", tmp_path / "small.yaml", "-o", "."))


def test_what_was_interrupted_lies_beside_the_former_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    assert arcsim("simulate", "-c", written(tmp_path, SMALL), "-o", out).code == 0
    before = (out / "steps.parquet").read_bytes()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("arcsim.sim.backend.SimulatedBackend.launch", interrupt)
    assert arcsim("simulate", "-c", tmp_path / "small.yaml", "-o", out).code == 130
    assert (out / "steps.parquet").read_bytes() == before
    assert Run.load(tmp_path / "out.interrupted").outcome == "interrupted"
