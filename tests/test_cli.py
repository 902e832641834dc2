"""The command line as a user meets it: what it prints, where, and with which exit code."""

import json
import os
from pathlib import Path

import pytest

from arcsim.policies.find import known_policies
from arcsim.traces.run import Run

from .command import POLICY, SMALL, TWO, arcsim, refused, written


@pytest.mark.parametrize("command", ["run-gpu", "calibrate"])
def test_the_help_says_what_to_install(command: str) -> None:
    """A bracket is markup there."""
    assert "arcsim[executor]" in arcsim(command, "--help").out


def test_without_a_command_there_is_help() -> None:
    left = arcsim()
    for command in ("simulate", "compare", "show", "policies", "workloads", "configs", "models", "fit", "conform"):
        assert command in left.out + left.err


def test_the_version_is_printed() -> None:
    assert arcsim("--version").out.startswith("arcsim ")


@pytest.mark.parametrize(("statement", "verdict", "code"), [
    ("expect: ['finished(continuous) == 4']", "CONFIRMED", 0),
    ("expect: ['finished(continuous) == 5']", "REFUTED", 1),
    ("control: ['finished(continuous) == 5']\nexpect: ['finished(continuous) == 4']", "INVALID", 2),
])
def test_the_verdict_is_the_exit_code(tmp_path: Path, statement: str, verdict: str, code: int) -> None:
    config = written(tmp_path, f"{SMALL}{statement}\n")
    loud = arcsim("simulate", "-c", config, "-o", tmp_path / "out")
    assert loud.code == code and f"verdict: {verdict}" in loud.out and loud.err == ""
    quiet = arcsim("simulate", "-c", config, "-o", tmp_path / "out", "--quiet")
    assert quiet.code == code and quiet.out.splitlines()[0] == f"verdict: {verdict}" and quiet.err == ""
    machine = arcsim("simulate", "-c", config, "-o", tmp_path / "out", "--json")
    assert machine.code == machine.json["exit_code"] == code and machine.json["verdict"] == verdict


def test_nothing_predicted_is_no_failure(tmp_path: Path) -> None:
    config = written(tmp_path, SMALL)
    left = arcsim("simulate", "-c", config, "-o", tmp_path / "out", "-q")
    assert (left.code, left.out, left.err) == (0, "", "")


def test_json_is_all_there_is_on_stdout(tmp_path: Path) -> None:
    left = arcsim("simulate", "-c", written(tmp_path, TWO), "-o", tmp_path / "out", "--json")
    variants = left.json["cells"][0]["variants"]
    assert variants["plain"]["requests"] == {"finished": 4} and left.json["folder"] == str(tmp_path / "out")
    assert left.err == "" and "NaN" not in left.out and set(variants) == {"plain", "first"}


def test_one_table_holds_the_variants_side_by_side(tmp_path: Path) -> None:
    out = arcsim("simulate", "-c", written(tmp_path, TWO), "-o", tmp_path / "out").out
    lines = out.splitlines()
    assert lines[0] == "small" and lines[1].split() == ["plain", "first"]
    assert [line.split()[-2:] for line in lines if line.startswith("steps")] == [["6", "6"]]
    assert f"report: {tmp_path / 'out' / 'report.html'}" in lines


def test_a_variant_and_a_key_can_be_chosen(tmp_path: Path) -> None:
    config = written(tmp_path, TWO)
    left = arcsim("simulate", "-c", config, "-o", tmp_path / "out", "--variant", "first", "--set", "workload.count=2",
                  "--json")
    assert list(left.json["cells"][0]["variants"]) == ["first"]
    assert Run.load(tmp_path / "out").requests.num_rows == 2


def test_the_default_folder_is_named_after_the_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert arcsim("simulate", "-c", written(tmp_path, SMALL), "-q").code == 0
    assert (tmp_path / "runs" / "small" / "run.json").is_file()


STALLS = POLICY.replace("admitted, self.waiting = self.waiting, []", "return Step(Gauges(0, len(self.waiting)))")


@pytest.mark.parametrize("flag", ["", "--quiet", "--json"])
def test_a_stall_says_who_waits_for_what(tmp_path: Path, flag: str) -> None:
    """In every manner of printing: on stderr, with exit code 2, and the trace is kept."""
    written(tmp_path, STALLS, "mine.py")
    config = written(tmp_path, SMALL.replace("continuous", "mine.py:Mine"))
    left = arcsim("simulate", "-c", config, "-o", tmp_path / "out", *filter(None, [flag]))
    assert left.code == 2
    assert "stalled: 12 empty steps in a row, and nothing more arrives" in left.err
    assert "4 waiting:" in left.err and "r3: 20 tokens, 0 computed" in left.err
    run = Run.load(tmp_path / "out")
    assert run.outcome == "stalled" and "4 waiting" in run.meta["report"]
    assert set(run.requests.column("status").to_pylist()) == {"unfinished"}
    assert flag != "--json" or left.json["verdict"] == "INVALID"


INTERRUPTED = POLICY.replace("        step.settle", """\
        if any(chunk.sequence.generated == 3 for forward in step.forwards for chunk in forward.chunks):
            raise KeyboardInterrupt
        step.settle""")


def test_an_interrupted_run_is_kept(tmp_path: Path) -> None:
    written(tmp_path, INTERRUPTED, "mine.py")
    config = written(tmp_path, TWO.replace("policy: continuous", "policy: mine.py:Mine").replace(
        "policy.batching: mixed", "policy.name: continuous").replace("policy.batching: prefill_first", ""))
    left = arcsim("simulate", "-c", config, "-o", tmp_path / "out", "-q")
    assert left.code == 130 and "small / first: interrupted at" in left.err
    assert Run.load(tmp_path / "out" / "first").outcome == "interrupted"
    assert Run.load(tmp_path / "out" / "plain").outcome == "completed"


def test_an_interruption_outside_of_a_run_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("arcsim.console_catalog.policy_rows", interrupted)
    left = arcsim("policies")
    assert left.code == 130 and "Traceback" not in left.err


def test_several_processes_come_to_the_same(tmp_path: Path) -> None:
    """Byte for byte: each process has a hash seed of its own."""
    config = written(tmp_path, TWO)
    for folder, jobs in (("one", "1"), ("two", "2")):
        assert arcsim("simulate", "-c", config, "-o", tmp_path / folder, "--jobs", jobs, "-q").code == 0
    for name in ("plain/steps.parquet", "plain/requests.parquet", "plain/run.json", "first/steps.parquet"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_what_goes_wrong_in_a_process_is_told_as_always(tmp_path: Path) -> None:
    written(tmp_path, POLICY.replace("step.settle(sampled)", "raise KeyError('x')"), "mine.py")
    config = written(tmp_path, TWO.replace("policy.batching: mixed", "policy: mine.py:Mine"))
    messages = {refused(arcsim("simulate", "-c", config, "-o", tmp_path / "out", "--jobs", jobs)) for jobs in "12"}
    assert messages == {"policy Mine raised KeyError in commit() at mine.py:19: 'x'"}
    assert not (tmp_path / "out").exists()


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    from arcsim.cli import main
    from arcsim.experiment.errors import UserError

    with pytest.raises(UserError, match="no such file"):
        main(["simulate", "-c", str(tmp_path / "none.yaml"), "--debug"])


def test_policies_are_listed_one_a_line() -> None:
    lines = arcsim("policies").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(known_policies())
    assert [row["policy"] for row in arcsim("policies", "--json").json] == list(known_policies())


def test_the_options_of_a_policy_are_explained() -> None:
    out = arcsim("policies", "mistralrs_paged").out
    assert "policy.victim: oldest or newest (default: oldest)\n    who loses its blocks when memory runs out" in out
    assert "engine.block_size: int > 0 (default: 32)\n    tokens in a block of KV" in out
    assert "max_num_batched_tokens" not in out  # it does not heed it
    options = arcsim("policies", "continuous", "--json").json
    assert {row["option"]: row["default"] for row in options["options"]}["policy.chunked_prefill"] == "true"
    assert all(row["meaning"] for row in (*options["options"], *options["engine"]))


def test_the_options_of_a_users_policy_are_listed(tmp_path: Path) -> None:
    path = written(tmp_path, POLICY, "mine.py")
    out = arcsim("policies", f"{path}:Mine").out
    assert "engine.num_blocks: int or auto (default: auto)" in out and "scheduler:" not in out


@pytest.mark.parametrize(("command", "name"), [
    ("workloads", "lognormal"), ("workloads", "ragpulse"), ("configs", "h200_ragged"), ("models", "llama-3.1-8b"),
    ("models", "h200"),
])
def test_what_there_is_stands_on_a_line_each(command: str, name: str) -> None:
    rows = arcsim(command, "--json").json
    assert any(name in row.values() for row in rows)
    assert any(name in line.split() for line in arcsim(command).out.splitlines())


def test_a_traces_statistics(tmp_path: Path) -> None:
    path = written(tmp_path, "arrival,prompt,output\n0,100,5\n2,300,7\n", "two.csv")
    out = arcsim("workloads", path).out
    assert "span" in out and "2 s" in out and "mean 200, p50 · p90 · p99 200 · 280 · 298, min 100, max 300" in out
    assert "note: format plain, 2 rows" in out
    found = arcsim("workloads", path, "--set", "workload.limit=1", "--json").json["two"]
    assert found["statistics"]["count"] == 1 and found["statistics"]["total_tokens"] == 105


def test_an_experiments_workloads_have_statistics_for_each_cell() -> None:
    found = arcsim("workloads", "h200_ragged", "--json").json
    assert found["prompt=spread(50,500)/8 count=32"]["statistics"]["count"] == 32 and len(found) == 6


def test_statistics_of_every_public_trace(shared: Path) -> None:
    """ServeGen's clients describe up to 80 million requests; a limit is heeded before they are made."""
    files = [*shared.glob("data/bench/*.csv"), *shared.glob("data/traces/*/*.csv"),
             *shared.glob("data/traces/*/*.jsonl"), *shared.glob("data/traces/servegen/*/*/*trace.csv")]
    assert len(files) > 20
    for path in files:
        found = arcsim("workloads", path, "--set", "workload.limit=300", "--json").json
        [described] = found.values()
        assert 1 <= described["statistics"]["count"] <= 300 and described["notes"]


def test_a_folder_of_several_runs_says_which(tmp_path: Path) -> None:
    config = written(tmp_path, TWO + "sweep: {workload.count: [1, 2]}\n")
    arcsim("simulate", "-c", config, "-o", tmp_path / "out", "-q")
    message = refused(arcsim("show", tmp_path / "out"))
    names = [f"{tmp_path}/out/count={count}/{variant}" for count in (1, 2) for variant in ("first", "plain")]
    assert message.splitlines() == [f"{tmp_path}/out holds 4 runs; name one of them:", *(f"  {name}" for name in names)]
    assert "holds 2 runs" in refused(arcsim("compare", tmp_path / "out" / "count=1", names[0]))
    assert arcsim("compare", *names[:2]).code == 0


def test_the_only_run_of_a_folder_is_found(tmp_path: Path) -> None:
    arcsim("simulate", "-c", written(tmp_path, TWO), "-o", tmp_path / "out", "-q", "--variant", "plain",
           "--set", "sweep.workload.count=[3]")
    left = arcsim("show", tmp_path / "out", "--interval", "0.003")
    assert left.code == 0 and "running" in left.out and "[forward width" in left.out


def test_the_log_is_replayed(tmp_path: Path) -> None:
    arcsim("simulate", "-c", written(tmp_path, SMALL), "-o", tmp_path / "out", "-q")
    lines = arcsim("show", tmp_path / "out", "--interval", "0.004").out.splitlines()
    assert len(lines) == 3 and all("4 running, 0 waiting    [forward width 4]" in line for line in lines[:2])
    assert arcsim("show", tmp_path / "out", "--interval", "0.004", "--json").json[0]["running"] == 4


def test_a_run_without_a_line_says_so(tmp_path: Path) -> None:
    arcsim("simulate", "-c", written(tmp_path, SMALL), "-o", tmp_path / "out", "-q", "--set", "engine.num_blocks=1")
    silent = arcsim("show", tmp_path / "out")
    assert silent.code == 0 and silent.out == "" and "no tick of 5 s" in silent.err


def test_two_runs_are_compared(tmp_path: Path) -> None:
    arcsim("simulate", "-c", written(tmp_path, TWO), "-o", tmp_path / "out", "-q")
    same = arcsim("compare", tmp_path / "out" / "plain", tmp_path / "out" / "plain")
    assert "decisions: IDENTICAL" in same.out and "All 6 steps agree, in decisions and in times." in same.out
    other = arcsim("compare", tmp_path / "out" / "plain", tmp_path / "out" / "first")
    assert "decisions: DIFFERENT from step 1 on" in other.out and "TTFT ms" in other.out
    assert arcsim("compare", tmp_path / "out" / "plain", tmp_path / "out" / "first", "--json").json["split"]


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_record_of_the_experiment_is_what_json_prints(tmp_path: Path) -> None:
    printed = arcsim("simulate", "-c", written(tmp_path, TWO), "-o", tmp_path / "out", "--json").json
    record = json.loads((tmp_path / "out" / "experiment.json").read_text())
    assert printed == record | {"folder": str(tmp_path / "out")}
    assert files_of(tmp_path / "out") == [
        "experiment.json", "first/requests.parquet", "first/run.json", "first/steps.parquet", "plain/requests.parquet",
        "plain/run.json", "plain/steps.parquet", "report.html",
    ]
    assert sorted(os.listdir(tmp_path)) == ["out", "small.yaml"]
