"""Decisions apart from times: records of a real vLLM, and runs of every policy, decided again at their own times."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from arcsim.experiment.document import parse
from arcsim.experiment.errors import UserError
from arcsim.experiment.plan import plan
from arcsim.experiment.replay import replay
from arcsim.experiment.simulate import simulate
from arcsim.traces.compare import compare
from arcsim.traces.decisions import DECISIONS
from arcsim.traces.importers.catalog import import_file
from arcsim.traces.importers.errors import ImportFault
from arcsim.traces.importers.vllm_record import run_of_record
from arcsim.traces.rows import run_from_rows
from arcsim.traces.run import Run

from .command import arcsim

GOLDEN = Path(__file__).parent / "golden" / "vllm_cpu"
RECORDS = sorted(GOLDEN.glob("*.json.gz"))
TIGHT = GOLDEN / "c_rate3.5_tight.json.gz"


def content(path: Path = TIGHT) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return record


def simulated(**parts: Any) -> Run:
    document = {
        "workload": {"kind": "synthetic", "count": 40, "prompt": {"uniform": [10, 300]}, "output": {"uniform": [1, 60]},
                     "arrivals": {"poisson": 8.0}, "seed": 3},
        "engine": {"block_size": 16, "num_blocks": 70, "max_num_seqs": 8},
        "latency": {"kind": "affine", "decode_step": "10ms", "prefill_step": "20ms", "padded_prefill_token": "0.1ms",
                    "row": "1ms", "host_row": "0.1ms"},
    } | parts
    planned = plan(parse(yaml.safe_dump(document).encode(), "test", Path(), "test"))
    return simulate(next(iter(planned.cells[0].configs.values())))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_the_engine_decided_as_the_policy_does_at_its_times(path: Path, tmp_path: Path) -> None:
    """Every scheduling column of every step, so also what the record does not state and the import works out."""
    imported = import_file(path, tmp_path / "run")
    recorded = Run.load(tmp_path / "run")
    again = replay(recorded)
    found = compare(recorded, again)
    assert imported.format == "vllm-record" and imported.steps == recorded.steps.num_rows > 900
    assert found.identical and found.same_times and found.columns_compared == tuple(column.name for column in DECISIONS)
    assert recorded.requests.equals(again.requests)
    assert (recorded.arm, again.arm, again.outcome) == ("measured", "replayed", "completed")


def one_token_less(step: dict[str, Any]) -> None:
    id, (length, start) = next((id, row) for id, row in step["scheduled"].items() if row[0] > 1)
    step["scheduled"][id] = [length - 1, start]


def nobody_left_out(step: dict[str, Any]) -> None:
    step["preempted"].pop()


MUTATIONS: tuple[tuple[str, Callable[[dict[str, Any]], bool], Callable[[dict[str, Any]], None]], ...] = (
    ("running", lambda step: True, lambda step: step.update(running=step["running"] + 1)),
    ("waiting", lambda step: True, lambda step: step.update(waiting=step["waiting"] + 1)),
    ("prefill_tokens", lambda step: any(row[0] > 1 for row in step["scheduled"].values()), one_token_less),
    ("forward_width", lambda step: len(step["scheduled"]) > 1, lambda step: step["scheduled"].popitem()),
    ("preempted", lambda step: bool(step["preempted"]), nobody_left_out),
)


@pytest.mark.parametrize(("column", "suits", "change"), MUTATIONS, ids=[name for name, _, _ in MUTATIONS])
def test_a_record_changed_in_one_step_is_found_out(
    column: str, suits: Callable[[dict[str, Any]], bool], change: Callable[[dict[str, Any]], None],
) -> None:
    """The mutations that the comparison is there to catch: the first step that differs is the changed one."""
    record = content()
    number = next(number for number, step in enumerate(record["steps"]) if number > 300 and suits(step))
    change(record["steps"][number])
    recorded = run_of_record(record, TIGHT)
    split = compare(recorded, replay(recorded)).split
    assert split is not None and split.step == number and column in split.columns


@pytest.mark.parametrize(("section", "key", "value"), [
    ("engine", "max_num_batched_tokens", 255), ("engine", "num_blocks", 61),
    ("policy", "scheduler_reserve_full_isl", False),
])
def test_other_limits_than_the_engine_had_are_found_out(section: str, key: str, value: object) -> None:
    recorded = run_of_record(content(), TIGHT)
    recorded.meta["config"][section][key] = value
    found = compare(recorded, replay(recorded))
    assert not found.identical and "so it is the rules, not the times" in found.why[0]


@pytest.mark.parametrize("policy", [
    "continuous", "mistralrs_dense", "mistralrs_paged", "sglang", "vllm", {"name": "vllm", "async_scheduling": False},
], ids=str)
def test_a_simulated_run_is_decided_alike_at_its_own_times(policy: object) -> None:
    """With preemptions, and with steps scheduled while the one before is in flight."""
    run = simulated(policy=policy)
    found = compare(run, replay(run))
    assert found.identical and found.same_times
    assert run.column("preempted").any() or policy in ("mistralrs_dense", "sglang")


def test_a_run_that_cannot_be_replayed_says_why() -> None:
    shared = simulated(policy="vllm", workload={
        "kind": "synthetic", "count": 9, "prompt": 200, "output": 5, "prefix": {"tokens": 160},
        "arrivals": {"poisson": 4.0},
    })
    made = {"kind": "synthetic", "count": 30, "prompt": {"uniform": [10, 300]}, "output": 9,
            "arrivals": {"poisson": 50.0}}
    urgent = simulated(policy="continuous", workload=made | {"priority": [1, 0]})
    turned_away = simulated(policy="continuous", workload=made, engine={"block_size": 16, "num_blocks": 18})
    empty = run_from_rows([], [{"prompt_tokens": 3}])
    blind = run_from_rows([{"t_end": 1.0, "forward_width": 1}], [{"prompt_tokens": 3}])
    nameless = run_from_rows([{"t_end": 1.0, "forward_width": 1, "arrived": 1}], [{"prompt_tokens": 3}])
    for run, said in (
        (shared, "here: its prompts share prefixes"), (empty, "no steps or no requests"),
        (blind, "do not say which requests had arrived"), (nameless, "no config.engine and config.policy.name"),
        (urgent, "here: its requests have several priorities"), (turned_away, r"here: \d requests were rejected"),
    ):
        with pytest.raises(UserError, match=said):
            replay(run, "here")


def test_a_record_can_be_served_again_in_simulation(tmp_path: Path) -> None:
    """Same names, times and lengths; in the same order where two come at once."""
    import_file(TIGHT, tmp_path / "real")
    workload = {"kind": "trace", "path": str(tmp_path / "real")}
    run = simulated(policy="vllm", workload=workload, engine={"num_blocks": 400})
    columns = ["id", "arrival", "prompt_tokens", "output_tokens"]
    real = Run.load(tmp_path / "real").requests.select(columns)
    assert real.column("arrival").to_pylist() == pytest.approx(run.requests.column("arrival").to_pylist(), abs=1e-9)
    assert real.drop_columns(["arrival"]).equals(run.requests.select(columns).drop_columns(["arrival"]))


def test_the_commands(tmp_path: Path) -> None:
    real, again = tmp_path / "real", tmp_path / "again"
    assert "vllm-record" in arcsim("import", TIGHT, "-o", real).out
    done = arcsim("replay", real, "-o", again)
    assert done.code == 0 and "IDENTICAL in every scheduling column of every step" in done.out
    assert arcsim("compare", real, again, "--json").json["identical"]
    meta = json.loads((real / "run.json").read_text())
    meta["config"]["engine"]["max_num_seqs"] = 8
    (real / "run.json").write_text(json.dumps(meta))
    done = arcsim("replay", real, "--json")
    assert done.code == 1 and done.json["split"]["columns"]["running"]


def test_a_broken_record_is_refused_with_its_place(tmp_path: Path) -> None:
    def left_out(key: str) -> dict[str, Any]:
        return {name: value for name, value in content().items() if name != key}

    def without(key: str, of: str) -> dict[str, Any]:
        record = content()
        del (record[of] if isinstance(record[of], dict) else record[of][3])[key]
        return record

    late = content()
    late["config"]["async_scheduling"] = True
    strange = content()
    strange["steps"][5]["scheduled"] = {"nobody-1": [1, 5]}
    sizeless, timeless, dateless = content(), content(), content()
    sizeless["config"]["block_size"] = 0
    timeless["steps"][6]["t_start"] = "now"
    dateless["requests"][2]["arrival"] = "then"
    for record, said in (
        (left_out("device"), "no line in it is of a known log"), (left_out("steps"), "steps: a list of at least one"),
        (without("scheduled", "steps"), r"steps\[3\] has no scheduled"),
        (without("block_size", "config"), "config has no block_size"),
        (without("added", "requests"), r"requests\[3\] has no added"), (late, "steps that overlap"),
        (strange, r"steps\[5\]: not as in a vLLM record: KeyError 'nobody'"),
        (sizeless, "config has no block_size .a number from 1 up"), (timeless, r"steps\[6\]: .*ValueError .*'now'"),
        (dateless, "requests: not as in a vLLM record: ValueError .*'then'"),
    ):
        path = tmp_path / "record.json"
        path.write_text(json.dumps(record))
        with pytest.raises(ImportFault, match=said):
            import_file(path, tmp_path / "run")
        assert not (tmp_path / "run").exists()
    cut = tmp_path / "cut.json"
    for text in (json.dumps(content())[:-100], '{"engine": "vllm", "device": ' + "[" * 100_000):
        cut.write_text(text)
        with pytest.raises(ImportFault, match="cut.json: not JSON"):
            import_file(cut, tmp_path / "run")
