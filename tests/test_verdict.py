"""The verdict: what controls, predictions and notes come to over all cells.

Mutations tried, each caught here: a failing control counted as REFUTED, notes counted, a skipped prediction ignored, a
stalled run forgiven, any cell instead of all.
"""

import json
from collections.abc import Mapping, Sequence

import pytest

from arcsim.experiment.statements import Entry, parse_statement
from arcsim.experiment.verdict import CONFIRMED, INVALID, REFUTED, Observation, Verdict, judge

NAN = float("nan")


class Steps:
    """Every number of a variant is its number of steps; equal numbers decide alike."""

    def __init__(self, steps: Mapping[str, float]) -> None:
        self._steps = steps

    def value(self, function: str, column: str | None, variant: str) -> float:
        return self._steps[variant]

    def difference(self, first: str, second: str) -> object | None:
        return None if self._steps[first] == self._steps[second] else "they part"


def cell(count: int, problems: Mapping[str, str] | None = None, **steps: float) -> Observation:
    configs = {variant: {"workload": {"count": count}} for variant in steps}
    return Observation(f"count={count}", configs, Steps(steps), problems or {})


def entries(*pairs: tuple[str, str]) -> list[Entry]:
    return [Entry(kind, f"{kind}.{index}", parse_statement(text)) for index, (kind, text) in enumerate(pairs)]


def judged(pairs: Sequence[tuple[str, str]], *cells: Observation) -> Verdict:
    return judge(entries(*pairs), cells or (cell(1, a=1, b=1), cell(8, a=8, b=2)))


EQUAL = ("control", "equal_steps(a, b) where workload.count == 1")
UNEQUAL = ("control", "equal_steps(a, b) where workload.count == 8")
RIGHT = ("expect", "steps(a) / steps(b) in [3, 5] where workload.count == 8")
WRONG = ("expect", "steps(a) < 3 where workload.count == 8")
EMPTY = ("expect", "steps(a) < 3 where workload.count == 99")


@pytest.mark.parametrize(("pairs", "outcome", "code"), [
    ([], None, 0),
    ([RIGHT], CONFIRMED, 0),
    ([EQUAL], CONFIRMED, 0),
    ([EQUAL, RIGHT], CONFIRMED, 0),
    ([EQUAL, WRONG, RIGHT], REFUTED, 1),
    ([UNEQUAL, RIGHT], INVALID, 2),
    ([UNEQUAL, WRONG], INVALID, 2),
    ([EQUAL, ("expect", "steps(a) < 3")], REFUTED, 1),
    ([("control", "steps(b) <= 2")], CONFIRMED, 0),
    ([RIGHT, ("note", WRONG[1]), ("note", "steps(a) / 0 < 1")], CONFIRMED, 0),
    ([("note", RIGHT[1])], None, 0),
    ([("expect", "steps(a) / (steps(b) - 2) < 3 where workload.count == 8")], INVALID, 2),
    ([RIGHT, EMPTY], None, 0),
    ([WRONG, EMPTY], REFUTED, 1),
    ([UNEQUAL, EMPTY], INVALID, 2),
    ([RIGHT, ("note", EMPTY[1])], CONFIRMED, 0),
    ([RIGHT, ("expect", "steps(absent) < 3")], None, 0),
])
def test_the_verdict_follows_from_the_outcomes(pairs: list[tuple[str, str]], outcome: str | None, code: int) -> None:
    found = judged(pairs)
    assert (found.outcome, found.exit_code) == (outcome, code)
    assert bool(found.reasons) == (outcome != CONFIRMED and bool(pairs) and pairs[0][0] != "note")


def test_no_data_is_not_true_and_makes_it_invalid() -> None:
    found = judged([("expect", "mean(ttft, a) < 1")], cell(1, a=NAN))
    assert (found.outcome, found.reasons) == (INVALID, (
        "[count=1] expect no data: mean(ttft, a) < 1 (no data for mean(ttft, a))",
    ))


STALLED = cell(1, {"a": "stalled at step 7"}, a=1, b=1)


@pytest.mark.parametrize(("pairs", "outcome"), [
    ([], INVALID), ([("expect", "steps(a) < 3")], INVALID), ([("expect", "completed(b)")], INVALID),
    ([("expect", "completed(a)")], REFUTED), ([("control", "completed(a)")], INVALID),
    ([("expect", "not completed(a)")], CONFIRMED), ([("note", "not completed(a)")], INVALID),
    ([("expect", "not completed(a) where workload.count == 8"), ("expect", "steps(b) < 3")], INVALID),
])
def test_a_run_that_did_not_complete_makes_it_invalid_unless_that_is_what_is_said(
    pairs: list[tuple[str, str]], outcome: str,
) -> None:
    assert judged(pairs, STALLED).outcome == outcome


def test_reasons_say_cell_statement_and_what_was_measured() -> None:
    assert judged([UNEQUAL, WRONG]).reasons == (f"[count=8] control fails: {UNEQUAL[1]} (they part)",)
    assert judged([WRONG]).reasons == (f"[count=8] expect fails: {WRONG[1]} (8 < 3)",)
    assert judged([], STALLED).reasons == ("[count=1] a did not complete: stalled at step 7",)
    assert judged([RIGHT, EMPTY]).reasons == (f"expect skipped: {EMPTY[1]} (no cell that was run matches)",)


def test_there_is_a_finding_for_each_cell_that_a_statement_speaks_of() -> None:
    found = judged([("expect", "steps(a) < 3"), RIGHT, ("expect", "steps(absent) < 3")]).findings
    assert [(each.cell, each.outcome, each.measured) for each in found] == [
        ("count=1", "holds", "1 < 3"), ("count=8", "fails", "8 < 3"), ("count=8", "holds", "4 in [3, 5]"),
        ("count=1", "skipped", "absent did not run"), ("count=8", "skipped", "absent did not run"),
    ]


def test_a_cell_of_which_nothing_ran_counts_for_nothing() -> None:
    found = judged([RIGHT, ("expect", "steps(a) < 3")], cell(8, a=2, b=0.5), cell(1))
    assert (found.outcome, [each.cell for each in found.findings]) == (CONFIRMED, ["count=8", "count=8"])


def test_a_verdict_is_plain_data() -> None:
    note = Entry("note", "note.0", parse_statement("steps(a) < 3 where workload.count == 8"), "they said so")
    plain = judge([*entries(RIGHT), note], [cell(8, a=8, b=2)]).as_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == {
        "verdict": "CONFIRMED", "exit_code": 0, "reasons": [], "findings": [
            {"kind": "expect", "text": RIGHT[1], "because": None, "cell": "count=8", "outcome": "holds",
             "measured": "4 in [3, 5]", "values": [4.0, 3.0, 5.0]},
            {"kind": "note", "text": "steps(a) < 3 where workload.count == 8", "because": "they said so",
             "cell": "count=8", "outcome": "fails", "measured": "8 < 3", "values": [8.0, 3.0]},
        ],
    }
