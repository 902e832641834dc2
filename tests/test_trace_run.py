"""A run on disk: whole or not there, and the same bytes for the same run."""

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from arcsim.traces.rows import run_from_rows
from arcsim.traces.run import Run, UnknownName
from arcsim.traces.run_files import RunError, runs_inside


def small_run(**meta: object) -> Run:
    steps = [{"t_start": i, "t_end": i + 1, "running": i % 3, "forward_width": i % 3} for i in range(50)]
    requests: list[dict[str, Any]] = [
        {"arrival": 0.5, "prompt_tokens": 7, "token_times": [1.0, 2.0]}, {"status": "rejected", "reason": "é"},
    ]
    return run_from_rows(steps, requests, {"arm": "simulated", "seed": 0, **meta})


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    run = small_run(outcome="completed", config={"engine": {"block_size": 32}})
    run.save(tmp_path / "deep" / "run")
    again = Run.load(tmp_path / "deep" / "run")
    assert again.steps.equals(run.steps) and again.meta == run.meta and again.outcome == "completed"
    columns = [name for name in run.requests.column_names if name not in ("first_scheduled", "first_token", "finish")]
    assert again.requests.select(columns).equals(run.requests.select(columns))


def test_a_frame_has_the_columns() -> None:
    run = small_run()
    assert list(run.steps_frame().columns) == run.steps.column_names
    assert run.requests_frame()["reason"].tolist() == ["", "é"]


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(UnknownName, match="no numeric column 'runing'.*running, waiting"):
        small_run().column("runing")
    with pytest.raises(UnknownName, match="no numeric column 'status'"):
        small_run().request_column("status")
    with pytest.raises(ValueError, match="no such column: runing"):
        run_from_rows([{"runing": 1}])


def test_a_table_of_other_columns_is_no_run() -> None:
    run = small_run()
    with pytest.raises(ValueError, match="table of steps .* missing: waiting; unknown: none"):
        Run(run.steps.drop_columns(["waiting"]), run.requests)


WRITE = """
import sys
sys.path.insert(0, {tests!r})
from test_trace_run import small_run
small_run(tags={{name: 1 for name in ("a", "b", "c")}}).save(sys.argv[1])
"""


def test_equal_runs_have_equal_bytes_in_any_process(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        code = WRITE.format(tests=str(Path(__file__).parent))
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, str(tmp_path / seed)], check=True, env=environment)
    assert hashes(tmp_path / "1") == hashes(tmp_path / "2")
    assert set(hashes(tmp_path / "1")) == {"steps.parquet", "requests.parquet", "run.json"}


def test_how_a_table_was_pieced_together_does_not_show(tmp_path: Path) -> None:
    import pyarrow as pa

    run = run_from_rows({"t_start": i, "t_end": i + 1, "forward_width": i % 7} for i in range(5000))
    pieces = pa.concat_tables([run.steps.slice(0, 700), run.steps.slice(700)])
    run.save(tmp_path / "a")
    Run(pieces, run.requests, run.meta).save(tmp_path / "b")
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")


def test_numbers_that_are_not_finite_do_not_spoil_the_json(tmp_path: Path) -> None:
    small_run(rate=float("inf"), path=Path("x")).save(tmp_path / "run")
    written = json.loads((tmp_path / "run" / "run.json").read_text())
    assert written["rate"] is None and written["path"] == "x"


def test_a_former_run_is_replaced_and_nothing_is_left_beside(tmp_path: Path) -> None:
    small_run(seed=1).save(tmp_path / "run")
    (tmp_path / "run" / "report.html").write_text("old")
    small_run(seed=2).save(tmp_path / "run")
    assert Run.load(tmp_path / "run").meta["seed"] == 2
    assert not (tmp_path / "run" / "report.html").exists()
    assert os.listdir(tmp_path) == ["run"]


def test_a_link_to_a_run_stays_a_link(tmp_path: Path) -> None:
    small_run(seed=1).save(tmp_path / "run")
    (tmp_path / "link").symlink_to("run", target_is_directory=True)
    small_run(seed=2).save(tmp_path / "link")
    assert Run.load(tmp_path / "run").meta["seed"] == 2 and (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "run"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    small_run().save(tmp_path / "run")
    assert Run.load(tmp_path / "run").arm == "simulated"


def test_other_peoples_files_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"holds files that are not those of a run \(notes.txt\)"):
        small_run().save(tmp_path)
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(RunError, match="run is a file"):
        small_run().save(tmp_path / "run")
    with pytest.raises(OSError, match=f"cannot write {tmp_path / 'run' / 'deeper'}"):
        small_run().save(tmp_path / "run" / "deeper")


FULL = """
import resource, sys
sys.path.insert(0, {tests!r})
from test_trace_run import small_run
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    small_run(seed=2).save(sys.argv[1])
except OSError as error:
    print(error)
"""


def test_a_full_disk_leaves_the_former_run_whole(tmp_path: Path) -> None:
    """The writes really fail: the process may not write files of more than 2,000 bytes."""
    small_run(seed=1).save(tmp_path / "run")
    before = hashes(tmp_path / "run")
    code = FULL.format(tests=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.stdout.startswith(f"cannot write {tmp_path / 'run'}: ") and done.stdout.count("\n") == 1
    assert done.stderr == ""
    assert hashes(tmp_path / "run") == before and os.listdir(tmp_path) == ["run"]


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no such folder"):
        Run.load(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"it has no run.json, steps.parquet, requests.parquet$"):
        Run.load(tmp_path)
    small_run().save(tmp_path / "bucketed")
    with pytest.raises(RunError, match=f"name one of the runs inside it: {tmp_path / 'bucketed'}"):
        Run.load(tmp_path)
    assert runs_inside(tmp_path) == [tmp_path / "bucketed"]
    with pytest.raises(RunError, match="a run is a folder, this is a file"):
        Run.load(tmp_path / "bucketed" / "run.json")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("steps.parquet", b"PAR1 no", "steps.parquet: not a readable Parquet file"),
        ("requests.parquet", b"", "requests.parquet: not a readable Parquet file"),
        ("run.json", b"{", "run.json: not readable as JSON"),
        ("run.json", b"\xff", "run.json: not readable as JSON"),
        ("run.json", b"{}", "run.json: not the record of a run"),
        ("run.json", b'{"format": 99}', "run.json: format 99, but this version reads format 1"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, file: str, content: bytes, message: str) -> None:
    small_run().save(tmp_path / "run")
    (tmp_path / "run" / file).write_bytes(content)
    with pytest.raises(RunError, match=message):
        Run.load(tmp_path / "run")


def test_another_programs_parquet_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    run = small_run()
    run.save(tmp_path / "run")
    parquet.write_table(pa.table({"x": [1]}), tmp_path / "run" / "steps.parquet")
    with pytest.raises(RunError, match="steps.parquet: columns missing: step, t_start"):
        Run.load(tmp_path / "run")
    texts = pa.array(["many"] * 50)
    parquet.write_table(run.steps.set_column(3, "running", texts), tmp_path / "run" / "steps.parquet")
    with pytest.raises(RunError, match="steps.parquet: a column has the wrong type"):
        Run.load(tmp_path / "run")
