"""What an experiment runs: the order of changes, where each key was written, and what is refused before anything runs.

Mutations tried, each caught here: the sweep left out where a variant is applied, a set key swept on, `--set` undone by
a variant unnoticed, statements checked against the cells that `--set` left only.
"""

from pathlib import Path
from typing import Any

import pytest

from arcsim.experiment.document import Document, parse
from arcsim.experiment.errors import UserError
from arcsim.experiment.plan import Plan, plan

H200 = """\
name: h200_ragged
model: qwen2.5-0.5b
hardware: h200
workload: {kind: synthetic, count: 8, prompt: {spread: [50, 500], distinct: 8}, output: 64, arrivals: at_once, seed: 0}
engine: {block_size: 32, num_blocks: auto, max_num_seqs: 32, max_num_batched_tokens: null}
latency: {kind: affine, decode_step: 2.90ms, prefill_step: 4.95ms, padded_prefill_token: 16.1us, row: 0.639ms}
policy: {name: mistralrs_paged, caching: none}
variants:
  bucketed:    {policy.decode: bucketed, policy.prefill: bucketed}
  length_rule: {policy.decode: ragged, policy.prefill: length_rule}
sweep:
  workload.prompt: [{fixed: 275}, {spread: [50, 500], distinct: 8}]
  workload.count: [1, 8, 32]
control:
  - equal_steps(bucketed, length_rule) where workload.count == 1
expect:
  - mean(forward_width, bucketed) < 1.5 where workload.count == 8 and workload.prompt.distinct == 8
  - throughput(length_rule) / throughput(bucketed) in [7, 10] where workload.count == 8
"""


def document(text: str) -> Document:
    return parse(text.encode(), "my.yaml", Path("/configs"), "my")


def planned(text: str = H200, *sets: str, only: tuple[str, ...] = ()) -> Plan:
    return plan(document(text), sets, only)


def refused(text: str, *sets: str, only: tuple[str, ...] = ()) -> str:
    with pytest.raises(UserError) as caught:
        planned(text, *sets, only=only)
    return str(caught.value)


def test_the_example_of_the_design() -> None:
    found = planned()
    assert found.variants == ("bucketed", "length_rule")
    assert [cell.label for cell in found.cells] == [
        f"prompt={prompt} count={count}" for prompt in ("fixed(275)", "spread(50,500)/8") for count in (1, 8, 32)
    ]
    assert [(entry.kind, entry.key) for entry in found.entries] == [
        ("control", "control.0"), ("expect", "expect.0"), ("expect", "expect.1"),
    ]


def test_a_configuration_has_its_sweep_its_variant_and_times_as_seconds() -> None:
    assert planned().cells[5].configs["length_rule"].raw == {
        "model": "qwen2.5-0.5b", "hardware": "h200",
        "workload": {"kind": "synthetic", "count": 32, "prompt": {"spread": [50, 500], "distinct": 8}, "output": 64,
                     "arrivals": "at_once", "seed": 0},
        "engine": {"block_size": 32, "num_blocks": "auto", "max_num_seqs": 32, "max_num_batched_tokens": None},
        "latency": {"kind": "affine", "decode_step": 0.0029, "prefill_step": 0.00495, "padded_prefill_token": 16.1e-6,
                    "row": 0.000639},
        "policy": {"name": "mistralrs_paged", "caching": "none", "decode": "ragged", "prefill": "length_rule"},
    }


def test_an_experiment_without_variants_has_one_called_by_its_policy() -> None:
    for policy, name in (("continuous", "continuous"), ("./mine.py:Mine", "Mine"), ("{name: a.b:C, x: 1}", "C"),
                         ("./odd dir/mine.py", "odd_dir_mine.py")):
        found = planned(f"workload: {{}}\npolicy: {policy}\n")
        assert found.variants == (name,) and [cell.label for cell in found.cells] == [""]
    assert planned("workload: {}\npolicy: x\n").cells[0].configs["x"].raw == {
        "engine": {}, "workload": {}, "policy": {"name": "x"},
    }


def test_each_variant_may_name_its_own_policy() -> None:
    found = planned("workload: {}\nvariants: {a: {policy: vllm}, b: {policy: {name: sglang, x: 1}}}\n")
    assert [config.raw["policy"] for config in found.cells[0].configs.values()] == [
        {"name": "vllm"}, {"name": "sglang", "x": 1},
    ]


ORDER = """\
workload: {count: 1, other: 1}
policy: {name: x, a: base, b: base, c: base, d: base}
variants: {v: {policy.d: variant}}
sweep: {policy.c: [sweep]}
"""


def test_changes_come_in_the_order_base_set_sweep_variant() -> None:
    config = planned(ORDER, "policy.b=set").cells[0].configs["v"].raw
    assert config["policy"] == {"name": "x", "a": "base", "b": "set", "c": "sweep", "d": "variant"}


def test_setting_a_swept_key_ends_its_sweep() -> None:
    assert [cell.label for cell in planned(H200, "workload.count=4").cells] == [
        "prompt=fixed(275)", "prompt=spread(50,500)/8",
    ]
    assert [cell.label for cell in planned(H200, "sweep={}").cells] == [""]
    assert len(planned(H200, "sweep.workload.count=[2,4]").cells) == 4


def test_setting_the_policy_replaces_it_as_a_whole() -> None:
    found = planned(H200, "policy=./mine.py:Mine", "variants={}")
    assert found.cells[0].configs["Mine"].raw["policy"] == {"name": "./mine.py:Mine"}


def test_only_the_chosen_variants_run() -> None:
    found = planned(only=("length_rule",))
    assert found.variants == ("length_rule",) and list(found.cells[0].configs) == ["length_rule"]
    assert "did you mean bucketed? variants: bucketed, length_rule" in refused(H200, only=("bucketd",))


@pytest.mark.parametrize(("key", "place"), [
    ("policy.decode", "my.yaml:9: variants.bucketed.policy.decode"), ("policy.caching", "my.yaml:7: policy.caching"),
    ("workload.prompt.spread", "my.yaml:12: sweep.workload.prompt.spread"), ("workload.output", "my.yaml:4: workload."),
    ("engine.num_blocks", "--set engine.num_blocks"), ("engine.block_size", "my.yaml:5: engine.block_size"),
    ("latency.row", "--set latency.row"), ("latency", "my.yaml:6: latency"),
    ("policy.prefill", "--set variants.bucketed.policy.prefill"),
])
def test_a_key_is_placed_where_it_was_written(key: str, place: str) -> None:
    sets = ("engine.num_blocks=3", "latency.row=1ms", "variants.bucketed.policy.prefill=length_rule")
    assert planned(H200, *sets).cells[4].configs["bucketed"].where(key).startswith(place)


def test_a_variant_that_replaces_a_section_takes_over_its_keys() -> None:
    text = "workload: {}\npolicy: {name: x, a: 1}\nvariants:\n  v: {policy: {name: y, a: 2}}\n"
    assert planned(text, "policy.b=3", "variants.v={policy.c: 3}").cells[0].configs["v"].where("policy.a") == (
        "my.yaml:2: policy.a"
    )
    assert planned(text).cells[0].configs["v"].where("policy.a") == "my.yaml:4: variants.v.policy.a"


def test_relative_paths_start_at_the_file_or_where_the_command_was_given() -> None:
    text = "workload: {path: a.csv}\npolicy: ./mine.py:Mine\n"
    assert planned(text).cells[0].configs["Mine"].origins.folder_of("policy") == Path("/configs")
    found = planned(text, "policy=./mine.py:Mine").cells[0].configs["Mine"].origins
    assert (found.folder_of("policy.name"), found.folder_of("workload.path")) == (Path.cwd(), Path("/configs"))


@pytest.mark.parametrize(("text", "message"), [
    ("workload: {}\n", "my.yaml: policy: missing; name a policy"),
    ("workload: {}\nvariants: {a: {engine.x: 1}}\n", "my.yaml: policy: missing; name a policy here, or in each"),
    ("workload: {}\npolicy: x\nvariants:\n  a:\n    policy: {decode: 1}\n",
     'my.yaml:5: variants.a.policy: found {"decode": 1} without a name'),
    ("workload: {}\npolicy: x\nvariants:\n  a: {polcy.decode: 1}\n",
     "my.yaml:4: variants.a: polcy.decode: there is no section polcy; did you mean policy?"),
    ("workload: {}\npolicy: x\nvariants:\n  a: {control: []}\n", "my.yaml:4: variants.a: control: there is no section"),
    ("workload: {}\npolicy: x\nsweep:\n  worklod.count: [1]\n", "my.yaml:3: sweep: worklod.count: there is no section"),
    ("workload: {count: 1}\npolicy: x\nsweep:\n  workload.count.x: [1]\n",
     "my.yaml:4: sweep.workload.count.x: workload.count is 1, which has no keys of its own"),
    ("workload: {count: 1}\npolicy: x\nvariants:\n  a: {workload.count.x: 1}\n",
     "my.yaml:4: variants.a.workload.count.x: workload.count is 1, which has no keys"),
    ("workload: {}\npolicy: x\nvariants:\n  a: {policy: y}\nsweep: {policy.z: [1]}\n",
     "my.yaml:4: variants.a.policy: the sweep varies policy.z, and this variant undoes it"),
    ("workload: {}\npolicy: x\nexpect:\n  - mean(running, y) > 1\n  - 1 < 2\n",
     "my.yaml:5: expect.1: '1 < 2', character 1"),
    ("workload: {}\npolicy: x\nexpect:\n  - mean(running, y) > 1\n", "my.yaml:4: expect.0: 'mean(running, y) > 1', "
     "character 15: no variant 'y'; variants: x"),
])
def test_what_cannot_be_planned_is_refused_with_its_place(text: str, message: str) -> None:
    assert refused(text).startswith(message)


@pytest.mark.parametrize(("sets", "message"), [
    (("policy.decode=ragged",), "--set policy.decode: would be undone by policy.decode in variants.bucketed, vari"),
    (("enine.x=1",), "--set enine.x: there is no section enine; did you mean engine?"),
    (("workload.prompt.fixed=1",), "--set workload.prompt.fixed: workload.prompt is swept"),
    (("engine.num_blocks.x=1",), '--set engine.num_blocks.x: engine.num_blocks is "auto"'),
    (("variants.bucket.policy.x=1",), "--set variants.bucket.policy.x: no such variant; did you mean bucketed?"),
    (("expect=['mean(running, bucketed) <']",), "--set expect.0: 'mean(running, bucketed) <', character 26: found "),
    (("name=a b",), "--set name: 'a b' is no name"),
    (("sweep=3",), "--set sweep: found 3; it must be a mapping"),
])
def test_no_set_is_ignored_silently(sets: tuple[str, ...], message: str) -> None:
    assert refused(H200, *sets).startswith(message)


def test_a_set_may_name_what_only_other_variants_set() -> None:
    text = "workload: {}\npolicy: x\nvariants: {a: {policy.decode: 1}, b: }\n"
    assert planned(text, "policy.decode=2", only=("b",)).cells[0].configs["b"].raw["policy"]["decode"] == 2


@pytest.mark.parametrize("sets", [("workload.count=4",), ("sweep={}", "variants={}", "policy=./mine.py:Mine")])
def test_statements_about_what_a_set_took_away_are_no_error(sets: tuple[str, ...]) -> None:
    assert len(planned(H200, *sets).entries) == 3


def test_a_statement_that_no_cell_of_the_file_matches_is_an_error() -> None:
    text = H200.replace("where workload.count == 1\n", "where workload.count == 2\n")
    assert refused(text) == (
        "my.yaml:15: control.0: 'equal_steps(bucketed, length_rule) where workload.count == 2', character 42: no cell "
        "matches; workload.count is 1 or 8 or 32"
    )


def test_aliases_of_yaml_are_not_changed_together() -> None:
    text = "workload: &w {count: 1}\nlatency: *w\npolicy: x\n"
    raw: Any = planned(text, "workload.count=2").cells[0].configs["x"].raw
    assert (raw["workload"], raw["latency"]) == ({"count": 2}, {"count": 1})
