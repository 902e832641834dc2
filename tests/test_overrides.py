"""Changes by dotted key, `--set`, sweeps and the labels of their cells.

Mutations tried, each caught here: settings applied to the original instead of a copy, a section set after what lies in
it, the last swept key slowest, labels that leave out what tells two cells apart.
"""

import copy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from arcsim.experiment.errors import UserError
from arcsim.experiment.labels import folders, labels, short_keys
from arcsim.experiment.overrides import apply, cells, hides, lookup, parse_set, parse_sets, refuse_hidden, unswept

BASE: dict[str, Any] = {
    "policy": "x", "engine": {"num_blocks": "auto"}, "workload": {"prompt": {"fixed": 1}, "count": 8},
    "variants": {"a": {"policy.decode": "ragged"}, "v1.2": None}, "sweep": {"workload.count": [1, 8]},
}


@pytest.mark.parametrize(("settings", "section", "value"), [
    ({"engine.max_num_seqs": 64}, "engine", {"num_blocks": "auto", "max_num_seqs": 64}),
    ({"engine.num_blocks": None}, "engine", {"num_blocks": None}),
    ({"engine": {}}, "engine", {}),
    ({"policy.decode": "bucketed"}, "policy", {"name": "x", "decode": "bucketed"}),
    ({"policy": "y"}, "policy", "y"),
    ({"policy.decode": 1, "policy": "y"}, "policy", {"name": "y", "decode": 1}),
    ({"policy.deep.er": 1}, "policy", {"name": "x", "deep": {"er": 1}}),
    ({"workload.prompt.spread": [1, 2]}, "workload", {"prompt": {"fixed": 1, "spread": [1, 2]}, "count": 8}),
    ({"latency.row": "1ms"}, "latency", {"row": "1ms"}),
    ({"variants.a.policy.decode": 1}, "variants", {"a": {"policy.decode": 1}, "v1.2": None}),
    ({"variants.v1.2.policy.decode": 1}, "variants", {"a": {"policy.decode": "ragged"}, "v1.2": {"policy.decode": 1}}),
    ({"variants.b": {}}, "variants", {"a": {"policy.decode": "ragged"}, "v1.2": None, "b": {}}),
    ({"variants": {}}, "variants", {}),
    ({"sweep.workload.count": [3]}, "sweep", {"workload.count": [3]}),
    ({"sweep.engine.num_blocks": [3]}, "sweep", {"workload.count": [1, 8], "engine.num_blocks": [3]}),
])
def test_dotted_keys_are_set_in_a_copy(settings: dict[str, Any], section: str, value: object) -> None:
    before = copy.deepcopy(BASE)
    assert apply(BASE, settings) == before | {section: value}
    assert before == BASE


def test_nothing_is_shared_with_what_was_given() -> None:
    shared = {"fixed": 3}
    result = apply({"workload": {"prompt": shared, "other": shared}}, {"workload.prompt.fixed": 4})
    assert result == {"workload": {"prompt": {"fixed": 4}, "other": {"fixed": 3}}}


@pytest.mark.parametrize(("key", "message"), [
    ("engine.num_blocks.x", r'engine.num_blocks.x: engine.num_blocks is "auto", which has no keys of its own'),
    ("workload.count.x.y", r"workload.count is 8, which has no keys"),
    ("variants.b.policy.decode", r"no such variant; variants: a, v1.2"),
])
def test_a_key_below_a_value_is_refused(key: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        apply(BASE, {key: 1})


@pytest.mark.parametrize(("text", "key", "value"), [
    ("engine.max_num_seqs=64", "engine.max_num_seqs", 64), ("workload.rate=x2", "workload.rate", "x2"),
    ("a.b=[1, 2]", "a.b", [1, 2]), ("a={b: 1}", "a", {"b": 1}), ("a=null", "a", None), ("a=1e-3", "a", 0.001),
    ("policy=./mine.py:Mine", "policy", "./mine.py:Mine"), ("a=''", "a", ""), ("a=true", "a", True),
    ("a=b=c", "a", "b=c"), ("latency.row=2.9ms", "latency.row", "2.9ms"),
])
def test_a_set_reads_its_value_as_yaml(text: str, key: str, value: object) -> None:
    assert parse_set(text) == (key, value)


@pytest.mark.parametrize(("text", "message"), [
    ("engine", r"--set engine: no '='; write --set key=value"), ("=3", r"'' is no dotted key"),
    ("a..b=3", r"'a\.\.b' is no dotted key"), ("a b=3", r"'a b' is no dotted key"), ("a=", r"write null for none"),
    ("a=[1", r"--set a=\[1:1: not YAML"), ("a={b: 1, b: 2}", r"the key b stands twice"),
])
def test_a_set_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_set(text)


@given(st.text())
def test_no_set_breaks_the_reader(text: str) -> None:
    try:
        parse_set(text)
    except UserError as error:
        assert str(error).startswith("--set ")


def test_the_last_of_two_sets_counts() -> None:
    assert parse_sets(["a=1", "b=2", "a=3"]) == {"a": 3, "b": 2}


def test_lookup_finds_values_and_the_name_of_the_policy() -> None:
    config = {"policy": {"name": "x", "decode": None}, "engine": {"a": 1}}
    assert [lookup(config, key) for key in ("policy", "policy.decode", "engine.a")] == ["x", None, 1]
    for key in ("absent", "engine.b", "engine.a.b"):
        with pytest.raises(KeyError):
            lookup(config, key)


def test_the_first_swept_key_is_the_slowest() -> None:
    assert cells({"a": [1, 2], "b": ["x", "y"]}) == [
        {"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"},
    ]
    assert cells({}) == [{}]


@pytest.mark.parametrize(("later", "key", "value", "undone"), [
    ("policy", "policy", 1, True), ("policy", "policy.decode", 1, True), ("policy.decode", "policy", "x", False),
    ("policy.decode", "policy", {"decode": 1}, True), ("policy.deco", "policy.decode", 1, False),
    ("workload.prompt", "workload", {"count": 1}, False),
])
def test_what_undoes_what(later: str, key: str, value: object, undone: bool) -> None:
    assert hides(later, key, value) is undone


def test_a_set_takes_its_key_out_of_the_sweep() -> None:
    sweep: dict[str, list[Any]] = {"workload.count": [1, 8], "workload.prompt": [{"fixed": 1}]}
    assert unswept(sweep, {"workload.count": 4}) == {"workload.prompt": [{"fixed": 1}]}
    assert unswept(sweep, {"workload": {"count": 4}}) == {"workload.prompt": [{"fixed": 1}]}
    assert unswept(sweep, {"engine": 1}) == sweep
    with pytest.raises(UserError, match=r"--set workload.prompt.fixed: workload.prompt is swept .*--set sweep"):
        unswept(sweep, {"workload.prompt.fixed": 4})


def test_a_set_that_a_variant_undoes_is_refused() -> None:
    variants: dict[str, dict[str, Any]] = {"a": {"policy.decode": 1}, "b": {"policy": "y"}, "c": {}}
    with pytest.raises(UserError, match="--set policy.decode: would be undone by policy.decode in variants.a, varia"):
        refuse_hidden({"policy.decode": 2}, variants)
    refuse_hidden({"policy": "z"}, {"a": {"policy.decode": 1}})


def test_labels_are_short_and_tell_the_cells_apart() -> None:
    prompts = [{"fixed": 275}, {"spread": [50, 500], "distinct": 8}]
    sweep: dict[str, list[Any]] = {"workload.prompt": prompts, "workload.count": [1, 8]}
    assert labels(cells(sweep)) == [
        "prompt=fixed(275) count=1", "prompt=fixed(275) count=8",
        "prompt=spread(50,500)/8 count=1", "prompt=spread(50,500)/8 count=8",
    ]
    assert labels([{}]) == [""]


@pytest.mark.parametrize(("values", "expected"), [
    ([None, True, 1.5, "x"], ["a=null", "a=true", "a=1.5", "a=x"]), ([[1, [2]], []], ["a=[1,[2]]", "a=[]"]),
    ([{"name": "x", "decode": "y"}, {"kind": "z"}], ["a=x/y", "a=z"]),
    ([{"u": 1, "p": 2}, {"u": 1, "q": 2}], ["a={u=1,p=2}", "a={u=1,q=2}"]), ([1, 1], ["a=1 #1", "a=1 #2"]),
    ([1, "1"], ["a=1 #1", "a=1 #2"]), ([{}], ["a={}"]),
])
def test_labels_of_any_value(values: list[Any], expected: list[str]) -> None:
    assert labels([{"a": value} for value in values]) == expected


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab/.", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("kpq"), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(["w.a", "v.a", "w.b"]), st.lists(VALUES, min_size=1, max_size=3), max_size=3))
def test_no_two_cells_share_a_label_or_a_folder(sweep: dict[str, list[Any]]) -> None:
    names = labels(cells(sweep))
    assert len(set(names)) == len(names) == len({name.lower() for name in folders(names)})


def test_keys_are_as_short_as_they_can_be() -> None:
    keys = ["workload.seed", "policy.seed", "workload.prompt.distinct", "seed"]
    assert short_keys(keys) == {
        "workload.seed": "workload.seed", "policy.seed": "policy.seed", "workload.prompt.distinct": "distinct",
        "seed": "seed",
    }


def test_folders_are_plain_names() -> None:
    assert folders(["prompt=spread(50,500)/8 count=1", ""]) == ["prompt=spread_50_500_8_count=1", ""]
    assert folders(["a=x/y", "a=x y"]) == ["001_a=x_y", "002_a=x_y"]
    assert folders(["a=" + "x" * 200])[0] == "a=" + "x" * 78
