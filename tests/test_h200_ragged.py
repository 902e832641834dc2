"""The bundled experiment about the ragged-decode fix: its verdict, the ten published cells, and how it could fail."""

import csv
from pathlib import Path
from typing import Any

import pytest

from arcsim.experiment.document import bundled

from .command import Left, arcsim, written

CONFIG = bundled()["h200_ragged"].read_text()
PREDICTION = "mean(forward_width, bucketed) < 1.5"
CONTROL = "equal_steps(bucketed, length_rule) where workload.count == 1"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Left:
    return arcsim("simulate", "-c", "h200_ragged", "-o", tmp_path_factory.mktemp("ran") / "out", "--json")


@pytest.fixture(scope="module")
def answer(ran: Left) -> Any:
    return ran.json


def throughputs(answer: Any) -> dict[tuple[str, int, str], float]:
    """Tokens per second by the columns of the published table."""
    kinds = {True: "uniform", False: "spread"}
    return {
        (kinds["fixed" in cell["settings"]["workload.prompt"]], cell["settings"]["workload.count"], variant):
            summary["throughput"]
        for cell in answer["cells"] for variant, summary in cell["variants"].items()
    }


def test_it_is_confirmed(ran: Left, answer: Any) -> None:
    assert ran.code == 0 and ran.err == "" and answer["verdict"] == "CONFIRMED"
    assert {finding["outcome"] for finding in answer["findings"] if finding["kind"] != "note"} == {"holds"}


def test_the_refuted_claim_of_the_original_is_noted_outside_the_verdict(answer: Any) -> None:
    """The logged gauge does not collapse; the forward width does, to one sequence at a time."""
    [note] = [finding for finding in answer["findings"] if finding["kind"] == "note"]
    assert note["outcome"] == "fails" and "the logged gauge" in note["because"].replace("\n", " ")
    [cell] = [cell for cell in answer["cells"] if cell["label"] == "prompt=spread(50,500)/8 count=8"]
    bucketed = cell["variants"]["bucketed"]
    assert note["values"][0] == bucketed["running"]["mean"] == pytest.approx(4.4453, abs=1e-4)
    assert bucketed["forward_width"]["mean"] == bucketed["forward_width"]["max"] == 1


def test_the_ten_published_cells_are_within_four_percent(answer: Any, shared: Path) -> None:
    """Of the mean of the two boxes; both cells of batch 32 with spread lengths were not fitted."""
    found = throughputs(answer)
    with (shared / "data" / "h200_ragged.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    for row in rows:
        measured = (float(row["box_a_tok_s"]) + float(row["box_b_tok_s"])) / 2
        assert found[row["prompts"], int(row["batch"]), row["scheduler"]] == pytest.approx(measured, rel=0.04), row


def test_what_the_fix_is_worth(answer: Any) -> None:
    found = throughputs(answer)
    assert found["spread", 8, "length_rule"] / found["spread", 8, "bucketed"] == pytest.approx(8.94, abs=0.01)
    assert found["spread", 32, "length_rule"] / found["spread", 32, "bucketed"] == pytest.approx(7.69, abs=0.01)


@pytest.mark.parametrize(("old", "new", "verdict", "code"), [
    (f"- {PREDICTION}", f"- {PREDICTION.replace('<', '>')}", "REFUTED", 1),
    (f"- {CONTROL}", f"- {CONTROL.replace('count == 1', 'prompt.distinct == 8')}", "INVALID", 2),
    ("policy.decode: bucketed, policy.prefill: bucketed", "policy.decode: ragged, policy.prefill: length_rule",
     "REFUTED", 1),
    ("- that: mean(running, bucketed) < 1.5", "- that: mean(running, bucketed) > 1.5", "CONFIRMED", 0),
])
def test_it_could_have_ended_otherwise(tmp_path: Path, old: str, new: str, verdict: str, code: int) -> None:
    """A prediction turned around, a control that cannot hold, two variants that are the same, a note turned around."""
    assert old in CONFIG
    config = written(tmp_path, CONFIG.replace(old, new))
    left = arcsim("simulate", "-c", config, "-o", tmp_path / "out", "--set", "sweep.workload.count=[1, 8]",
                  "--set", "expect=null" if code == 0 else "description=x", "-q")
    assert (left.code, left.out.splitlines()[:1]) == (code, [f"verdict: {verdict}"])


def test_both_gauges_are_printed(tmp_path: Path) -> None:
    left = arcsim("simulate", "-c", "h200_ragged", "-o", tmp_path / "out", "--set", "sweep.workload.count=[8]")
    row = [line.split() for line in left.out.splitlines() if line.startswith("  bucketed")][1]
    assert row[2:8] == ["4.45", "/", "8", "1.00", "/", "1"]
    assert "note    mean(running, bucketed) < 1.5" in left.out and "fails  prompt=spread(50,500)/8" in left.out
