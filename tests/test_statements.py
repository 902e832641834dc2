"""The language of `control:`, `expect:` and `note:`: what can be said, what is refused, and which cells it is about.

Mutations tried, each caught here: an end of a range left out, conditions joined by or, a cell that lacks the key
counted, true taken for 1, `a - b - c` grouped from the right, a percentage taken as a whole number.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from arcsim.experiment.errors import UserError
from arcsim.experiment.statement_nodes import Binary, Comparison, Key, Measure, Negative, Number, Predicate, Range
from arcsim.experiment.statement_tokens import StatementError
from arcsim.experiment.statement_value import FAILS, HOLDS, NO_DATA, Evaluation, Measured
from arcsim.experiment.statement_words import FUNCTIONS, KEYWORDS, PREDICATES, REDUCERS, TOTALS
from arcsim.experiment.statements import check, matches, parse_statement, same

NAN = float("nan")
VALUES: Mapping[tuple[str, str | None, str], float] = {
    ("mean", "forward_width", "a"): 1.25, ("mean", "forward_width", "b"): 8.0, ("throughput", None, "a"): 438.3,
    ("throughput", None, "b"): 4000.5, ("p50", "ttft", "a"): 0.0412, ("mean", "tpot", "a"): NAN,
    ("steps", None, "a"): 0.0, ("makespan", None, "a"): 12.0, ("max", "running", "a"): 1.4999999,
    ("sum", "sampled_tokens", "a"): 1_234_567.0,
    ("steps", None, "my-variant"): 3.0, ("throughput", None, "c"): float("inf"),
}
CONFIG: Mapping[str, Any] = {
    "workload": {"count": 8, "kind": "synthetic", "prompt": {"spread": [50, 500], "distinct": 8}, "rate": None},
    "engine": {"num_blocks": "auto", "caching": True}, "policy": {"name": "vllm"}, "latency": {"row": 0.003},
}


class Fake:
    """Facts from the table above; `a` and `b` part at step 5."""

    def value(self, function: str, column: str | None, variant: str) -> float:
        return VALUES[function, column, variant]

    def difference(self, first: str, second: str) -> object | None:
        return None if first == second else "they part at step 5"


def measured(text: str, problems: Mapping[str, str] | None = None) -> Measured:
    statement = parse_statement(text)
    return Evaluation(Fake(), {variant: CONFIG for variant in statement.variants}, problems or {}).measure(statement)


def refused(text: str) -> str:
    with pytest.raises(StatementError) as caught:
        parse_statement(text)
    return str(caught.value).removeprefix(f"{text!r}, ")


@pytest.mark.parametrize(("text", "outcome", "shown"), [
    ("mean(forward_width, a) < 1.5", HOLDS, "1.25 < 1.5"),
    ("mean(forward_width, a) < 1.25", FAILS, "1.25 < 1.25"),
    ("mean(forward_width, a) <= 1.25", HOLDS, "1.25 <= 1.25"),
    ("mean(forward_width, b) > 8", FAILS, "8 > 8"),
    ("mean(forward_width, b) >= 8", HOLDS, "8 >= 8"),
    ("mean(forward_width, b) == 8.0", HOLDS, "8 == 8.0"),
    ("mean(forward_width, b) != 8", FAILS, "8 != 8"),
    ("throughput(b) / throughput(a) in [7, 10]", HOLDS, "9.127 in [7, 10]"),
    ("throughput(b) / throughput(a) in [7, 9]", FAILS, "9.127 in [7, 9]"),
    ("mean(forward_width, b) in [8, 9]", HOLDS, "8 in [8, 9]"),
    ("mean(forward_width, b) in [7, 8]", HOLDS, "8 in [7, 8]"),
    ("1 < mean(forward_width, a) < mean(forward_width, b) <= 8", HOLDS, "1 < 1.25 < 8 <= 8"),
    ("1 < mean(forward_width, b) < 8", FAILS, "1 < 8 < 8"),
    ("mean(forward_width, a) == 1.2 within 5%", HOLDS, "1.25 == 1.2 within 5%"),
    ("mean(forward_width, a) == 1.2 within 4%", FAILS, "1.25 == 1.2 within 4%"),
    ("mean(forward_width, a) == 1.2 within 0.06", HOLDS, "1.25 == 1.2 within 0.06"),
    ("-mean(forward_width, a) == -1.2 within 5%", HOLDS, "-1.25 == -1.2 within 5%"),
    ("mean(forward_width, a) == -1.2 within 5%", FAILS, "1.25 == -1.2 within 5%"),
    ("mean(forward_width, b) == workload.count", HOLDS, "8 == 8"),
    ("mean(forward_width, b) / workload.count > 90%", HOLDS, "1 > 90%"),
    ("p50(ttft, a) < 50ms", HOLDS, "41.2ms < 50ms"),
    ("p50(ttft, a) < 0.04", FAILS, "41.2ms < 0.04"),
    ("p50(ttft, a) + 10ms == 51.2ms within 0.1us", HOLDS, "51.2ms == 51.2ms within 0.1us"),
    ("makespan(a) / p50(ttft, a) > 291", HOLDS, "291.3 > 291"),
    ("makespan(a) < 0.2min", FAILS, "12s < 0.2min"),
    ("max(running, a) < 1.5", HOLDS, "1.4999999 < 1.5"),
    ("sum(sampled_tokens, a) == 1_234_567", HOLDS, "1234567 == 1_234_567"),
    ("10 - 2 - 3 < mean(forward_width, b)", HOLDS, "5 < 8"),
    ("10 - (2 - 3) < mean(forward_width, b)", FAILS, "11 < 8"),
    ("2 + 3 * 2 == mean(forward_width, b)", HOLDS, "8 == 8"),
    ("-mean(forward_width, b) == --8 - 2 * 8", HOLDS, "-8 == -8"),
    ("16 / 4 / 2 < mean(forward_width, b)", HOLDS, "2 < 8"),
    ("steps('my-variant') == 3", HOLDS, "3 == 3"),
    ('steps("my-variant")==3', HOLDS, "3 == 3"),
    ("equal_steps(a, a)", HOLDS, "equal"),
    ("equal_steps(a, b)", FAILS, "they part at step 5"),
    ("not equal_steps(a, b)", HOLDS, "they part at step 5"),
    ("completed(b)", HOLDS, "completed"),
    ("completed(a)", FAILS, "stalled at step 3"),
    ("not completed(a)", HOLDS, "stalled at step 3"),
    ("mean(tpot, a) < 1", NO_DATA, "no data for mean(tpot, a)"),
    ("throughput(c) > 1", NO_DATA, "no data for throughput(c)"),
    ("throughput(a) / steps(a) > 1", NO_DATA, "division by zero: 438.3 / 0"),
    ("throughput(a) < engine.num_blocks", NO_DATA, 'engine.num_blocks is "auto", which is no number'),
    ("throughput(a) < engine.caching", NO_DATA, "engine.caching is true, which is no number"),
    ("throughput(a) < 1e300 * 1e300", NO_DATA, "too large a number"),
])
def test_a_claim_comes_to_an_outcome_with_its_measured_sides(text: str, outcome: str, shown: str) -> None:
    found = measured(text, {"a": "stalled at step 3"})
    assert (found.outcome, found.text) == (outcome, shown)


def test_the_sides_are_kept_as_numbers() -> None:
    assert measured("throughput(b) / throughput(a) in [7, 10]").values == (4000.5 / 438.3, 7.0, 10.0)


def test_a_statement_is_read_into_its_parts() -> None:
    claim, where = "-mean(running, a) * 2 < workload.count + 5%", "a.b == x2 and c in [1, 'd e', [true, null]]"
    found = parse_statement(f"{claim} where {where}")
    assert found.claim == Comparison(
        (Binary("*", Negative(Measure("mean", "running", "a")), Number("2", 2.0)),
         Binary("+", Key("workload.count"), Number("5%", 0.05, "%"))), ("<",),
    )
    assert [(each.key, each.operator, each.value) for each in found.conditions] == [
        ("a.b", "==", "x2"), ("c", "in", [1, "d e", [True, None]]),
    ]
    assert found.variants == {"a": 15} and found.keys == {"workload.count": 24, "a.b": 50, "c": 64}


def test_other_claims() -> None:
    assert parse_statement("steps(a) in [1ms, 2]").claim == Range(
        Measure("steps", None, "a"), Number("1ms", 0.001, "ms"), Number("2", 2.0),
    )
    assert parse_statement("not completed(a)").claim == Predicate("completed", ("a",), True)


@pytest.mark.parametrize(("text", "message"), [
    ("", "character 1: found the end where a number, a function or a key must stand"),
    ("1 < 2", "character 1: reads nothing that a run measures, as mean(column, variant) or throughput(variant) would"),
    ("workload.count == 8", "character 1: reads nothing"),
    ("mean(runing, a) < 1", "character 6: mean reads no column 'runing'; did you mean running or running_end? "),
    ("time_mean(ttft, a) < 1", "character 11: time_mean reads no column 'ttft'"),
    ("meen(running, a) < 1", "character 1: no function 'meen'; did you mean mean or time_mean? functions: mean, "),
    ("running < 1", "character 1: running needs a function and a variant: write mean(running, variant)"),
    ("ttft < 1", "character 1: ttft needs a function"),
    ("throughput > 1", "character 1: throughput is a function: write throughput(variant)"),
    ("throughput(a, b) > 1", "character 13: found ',' where throughput(variant) must stand"),
    ("mean(running) > 1", "character 13: found ')' where mean(column, variant) must stand"),
    ("mean(running, ) > 1", "character 15: found ')' where the name of a variant must stand: mean(column, variant)"),
    ("mean(running, my-variant) > 1", "character 17: found '-' in mean(column, variant); a variant whose name is"),
    ("steps(a)", "character 9: found the end where a comparison must stand"),
    ("steps(a) = 1", "character 10: a single '='; equality is '=='"),
    ("steps(a) == 1 and steps(b) == 1", "character 15: and joins no statements"),
    ("steps(a) == 1 or steps(b) == 1", "character 15: or joins no statements"),
    ("equal_steps(a, b) == 1", "character 19: found '==' where the end or 'where' must stand"),
    ("equal_steps(a)", "character 14: found ')' where equal_steps(variant, other variant) must stand"),
    ("2 * equal_steps(a, b) < 1", "character 5: equal_steps is true or false"),
    ("not steps(a)", "character 5: not turns a predicate around; did you mean equal_steps? allowed: "),
    ("steps(a) < 3 parsecs", "character 14: found 'parsecs' where the end"),
    ("steps(a) < 3parsecs", "character 13: '3parsecs' is no number; the units are %, ns, us"),
    ("steps(a) < 1.2.3", "character 15: '1.2.3' is no number"),
    ("steps(a) < 1e999", "character 12: 1e999 is too large"),
    ("steps(a) < 'x'", "character 12: found 'x' where a number"),
    ("steps(a) in [10, 7]", "character 13: nothing is in [10, 7]; the smaller end comes first"),
    ("steps(a) in 3", "character 13: found '3' where a range such as [7, 10] must stand"),
    ("steps(a) in [3]", "character 15: found ']' where a range"),
    ("steps(a) < 3 within 5%", "character 14: within belongs to a single =="),
    ("steps(a) == 3 within x", "character 22: found 'x' where a tolerance such as 5%"),
    ("steps(a) == (3", "character 15: found the end where the closing parenthesis must stand"),
    ("steps(a) < 1 where", "character 19: found the end where a dotted key such as workload.count must stand"),
    ("steps(a) < 1 where x", "character 21: found the end after x; a condition is < <= > >= == != or in [...]"),
    ("steps(a) < 1 where x = 3", "character 22: a single '='"),
    ("steps(a) < 1 where x == ", "character 25: found the end where a value must stand"),
    ("steps(a) < 1 where x < y", "character 22: < needs a number on its right"),
    ("steps(a) < 1 where x < true", "character 22: < needs a number"),
    ("steps(a) < 1 where x in 3", "character 25: found '3' where a list such as [1, 8, 32] must stand"),
    ("steps(a) < 1 where x in [1", "character 27: found the end where the closing bracket"),
    ("steps(a) < 1 where x == -y", "character 26: found 'y' where a value must stand"),
    ("steps(a) < 1 where x == 1 or y == 2", "character 27: or joins no statements"),
    ("steps('a) < 1", "character 7: a quote that is never closed"),
    ("steps(a) < 1; 2", "character 13: ';' means nothing here"),
    ("__import__('os') < 1", "character 1: no function '__import__'"),
    ("(" * 3000 + "steps(a)", "character 41: nested more than 40 deep"),
    ("steps(a) < " + "-" * 3000 + "1", "character 52: nested more than 40 deep"),
    ("steps(a) < 1 where x in " + "[" * 3000, "character 65: nested more than 40 deep"),
])
def test_what_cannot_be_understood_is_refused_with_its_place(text: str, message: str) -> None:
    assert refused(text).startswith(message)


WORDS = st.sampled_from([
    *FUNCTIONS, *KEYWORDS, "running", "ttft", "a", "b", "workload.count", "1", "2.5", "5%", "3ms", "'q'", "true",
    "null", "(", ")", "[", "]", ",", "<", "<=", "==", "!=", "+", "-", "*", "/", " ",
])


@given(st.text() | st.lists(WORDS, max_size=14).map(" ".join))
@example("steps(a) < 1e9999999999999999999999")
@example("steps(a) < " + "9" * 5000)
@example("٣ < steps(a)")
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        parse_statement(text)
    except UserError as error:
        assert repr(text) in str(error)


SUMS: Mapping[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
Sum = tuple[str, int]


def joined(parts: tuple[Sum, str, Sum]) -> Sum:
    (left, first), sign, (right, second) = parts
    return f"({left} {sign} {right})", SUMS[sign](first, second)


def chained(parts: list[tuple[str, int]]) -> Sum:
    """Without parentheses, from the left."""
    text, value = "0", 0
    for sign, number in parts:
        text, value = f"{text} {sign} {number}", SUMS[sign](value, number)
    return text, value


NUMBERS: st.SearchStrategy[Sum] = st.integers(0, 99).map(lambda number: (str(number), number))
NESTED = st.recursive(NUMBERS, lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(joined)
                      | inner.map(lambda each: (f"-{each[0]}", -each[1])), max_leaves=12)
CHAINED = st.lists(st.tuples(st.sampled_from("+-"), st.integers(0, 99)), max_size=6).map(chained)


@given(NESTED | CHAINED)
def test_arithmetic_is_the_usual_one(expected: Sum) -> None:
    claim = parse_statement(f"{expected[0]} == steps(a)").claim
    assert isinstance(claim, Comparison)
    assert Evaluation(Fake(), {}, {}).number(claim.operands[0], ()) == expected[1]


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_what_is_shown_compares_as_the_numbers_do(left: float, right: float) -> None:
    class Two:
        def value(self, function: str, column: str | None, variant: str) -> float:
            return left if variant == "a" else right

        def difference(self, first: str, second: str) -> object | None:
            return None

    statement = parse_statement("throughput(a) < throughput(b)")
    found = Evaluation(Two(), {"a": {}, "b": {}}, {}).measure(statement)
    shown = [float(text) for text in found.text.split(" < ")]
    assert (shown[0] < shown[1]) == (left < right) == (found.outcome == HOLDS)


@pytest.mark.parametrize(("condition", "spoken"), [
    ("workload.count == 8", True), ("workload.count == 8.0", True), ("workload.count != 8", False),
    ("workload.count < 9", True), ("workload.count < 8", False), ("workload.count <= 8", True),
    ("workload.count > 7", True), ("workload.count > 8", False), ("workload.count >= 8", True),
    ("workload.count in [1, 8]", True), ("workload.count in [1, 32]", False), ("workload.count in []", False),
    ("workload.count == '8'", False), ("workload.kind == synthetic", True), ("workload.kind == 'synthetic'", True),
    ("workload.prompt.distinct == 8", True), ("workload.prompt.spread == [50, 500]", True),
    ("workload.prompt.spread == [50]", False), ("workload.prompt.fixed == 275", False),
    ("workload.prompt.fixed != 275", False), ("workload.rate == null", True), ("workload.rate < 3", False),
    ("engine.num_blocks == auto", True), ("engine.num_blocks > 3", False), ("engine.caching == true", True),
    ("engine.caching == 1", False), ("policy == vllm", True), ("policy.name == vllm", True),
    ("latency.row == 3ms", True),
    ("workload.count == 8 and workload.kind == trace", False), ("workload.count == 8 and workload.kind != trace", True),
])
def test_a_condition_chooses_the_cells(condition: str, spoken: bool) -> None:
    assert matches(parse_statement(f"steps(a) < 1 where {condition}"), {"a": CONFIG}) is spoken


def test_a_cell_without_a_key_of_the_claim_does_not_count() -> None:
    statement = parse_statement("steps(a) < workload.prompt.fixed")
    assert not matches(statement, {"a": CONFIG})
    assert matches(statement, {"a": {"workload": {"prompt": {"fixed": 3}}}})


def test_keys_are_those_of_the_variants_that_are_named() -> None:
    cell = {"a": {"policy": {"decode": "x"}}, "b": {"policy": {"decode": "y"}}}
    assert matches(parse_statement("steps(a) < 1 where policy.decode == x"), cell)
    assert not matches(parse_statement("steps(b) < 1 where policy.decode == x"), cell)


CELLS: list[dict[str, dict[str, dict[str, Any]]]] = [
    {variant: {"workload": {"count": count}, "policy": {"decode": variant}} for variant in ("a", "b")}
    for count in (1, 8)
]
CELLS[1]["a"]["workload"]["extra"] = CELLS[1]["b"]["workload"]["extra"] = 1


@pytest.mark.parametrize("text", [
    "steps(a) < 1", "steps(a) < 1 where workload.count == 8", "steps(a) < 1 where workload.extra == 1",
    "equal_steps(a, b) where workload.extra == 1", "steps(a) < 1 where policy.decode == a",
])
def test_a_statement_about_what_there_is_passes(text: str) -> None:
    check(parse_statement(text), ["a", "b"], CELLS)


@pytest.mark.parametrize(("text", "message"), [
    ("steps(aa) < 1", "character 7: no variant 'aa'; did you mean a? variants: a, b"),
    ("steps(a) < 1 where workload.cuont == 8", "character 20: no cell has a key 'workload.cuont'; did you mean workl"),
    ("steps(a) < 1 where count == 8", "character 20: no cell has a key 'count'; did you mean workload.count?"),
    ("steps(a) < distinct", "character 12: no cell has a key 'distinct'; keys: policy, policy.decode, workload, "),
    ("steps(a) < 1 where workload.count == 2", "character 20: no cell matches; workload.count is 1 or 8"),
    ("equal_steps(a, b) where policy.decode == a", "character 25: the variants a, b differ in policy.decode"),
])
def test_a_statement_about_what_there_is_not_is_refused(text: str, message: str) -> None:
    with pytest.raises(StatementError) as caught:
        check(parse_statement(text), ["a", "b"], CELLS)
    assert str(caught.value).removeprefix(f"{text!r}, ").startswith(message)


def test_every_function_can_be_called() -> None:
    for name in FUNCTIONS:
        columns = "" if name in TOTALS or name in PREDICATES else "running, "
        call = f"{name}({columns}{', '.join('a' * PREDICATES.get(name, 1))})"
        parse_statement(call if name in PREDICATES else f"{call} < 1")
    assert set(REDUCERS) < set(FUNCTIONS)


def test_true_is_not_one() -> None:
    assert same([1, [2.0]], [1.0, [2]]) and not same(True, 1) and not same([True], [1]) and not same("1", 1)
