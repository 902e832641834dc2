"""An experiment file as written: lines, duplicate keys, the traps of YAML, bundled names.

Mutations tried, each caught here: lines counted from 0, duplicate keys allowed, the resolver of `1e-3` left as YAML 1.1
has it, aliases that contain themselves followed for ever.
"""

from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from arcsim.experiment import document
from arcsim.experiment.document import Document, bundled, load, parse
from arcsim.experiment.errors import UserError
from arcsim.experiment.plan import plan
from arcsim.experiment.shape import shape_of
from arcsim.experiment.yaml_text import read_yaml

TEXT = """\
# a comment
name: mine
workload: {kind: synthetic, count: 8}
engine:
  block_size: 32
  num_blocks: auto
policy: continuous
variants:
  small:
    engine.num_blocks: 64
control:
  - first
  - second
"""


def written(text: str) -> Document:
    return parse(text.encode(), "my.yaml", Path("/configs"), "my")


def refused(text: str) -> str:
    with pytest.raises(UserError) as caught:
        found = written(text)
        shape_of(found.raw, found, found)
    return str(caught.value)


@pytest.mark.parametrize(("key", "line"), [
    ("name", 2), ("workload", 3), ("workload.count", 3), ("engine", 4), ("engine.num_blocks", 6), ("policy", 7),
    ("variants.small.engine.num_blocks", 10), ("control.0", 12), ("control.1", 13),
    ("engine.absent", 4), ("engine.num_blocks.absent.deeper", 6), ("control.7", 11),
])
def test_a_key_has_a_line_or_that_of_the_nearest_key_above(key: str, line: int) -> None:
    assert written(TEXT).line_of(key) == line


def test_a_message_begins_with_file_line_and_key() -> None:
    found = written(TEXT)
    assert found.where("engine.num_blocks") == "my.yaml:6: engine.num_blocks"
    assert found.where("latency") == "my.yaml: latency"
    assert found.where("") == "my.yaml"


def test_a_document_knows_its_name_and_folder(tmp_path: Path) -> None:
    path = tmp_path / "other.yml"
    path.write_text("workload: {}\npolicy: x\n")
    found = load(path)
    assert (found.name, found.folder, found.source) == ("other", tmp_path.resolve(), str(path))
    assert written(TEXT).name == "mine"


def test_a_duplicate_key_is_refused_with_both_lines() -> None:
    assert refused("workload: {}\nengine:\n  a: 1\n  b: 2\n  a: 3\n") == (
        "my.yaml:5: the key a stands twice, first on line 3: keep one"
    )


def test_a_merge_key_may_be_overridden() -> None:
    found = written("workload: &w {a: 1, b: 2}\nengine: {<<: *w, b: 3}\npolicy: x\n")
    assert found.raw["engine"] == {"a": 1, "b": 3}


@pytest.mark.parametrize(("text", "value"), [
    ("1e-3", 0.001), ("1E3", 1000.0), ("-.5", -0.5), ("2.5", 2.5), ("64", 64), ("-3", -3), ("0x10", 16),
    ("1_000", 1000),
    ("010", "010"), ("1:30", "1:30"), ("2026-01-01", "2026-01-01"), ("=", "="), ("none", "none"), ("null", None),
    ("~", None), ("true", True), ("off", False), ("x2", "x2"), ("2.9ms", "2.9ms"), (".inf", float("inf")),
])
def test_scalars_are_what_people_expect(text: str, value: object) -> None:
    found = read_yaml(f"a: {text}", "x").value["a"]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("word", ["on", "off", "yes", "no"])
def test_a_bare_boolean_word_where_a_text_is_needed_says_to_quote_it(word: str) -> None:
    message = refused(f"workload: {{}}\npolicy: {word}\n")
    assert message.startswith("my.yaml:2: policy: found ") and "write the word in quotes" in message


def test_a_bare_boolean_word_as_a_key_says_to_quote_it() -> None:
    message = refused("workload: {}\npolicy: x\nvariants:\n  off: {}\n")
    assert message.startswith("my.yaml:4: the key off is no text: YAML reads a bare on, off")


@pytest.mark.parametrize(("text", "message"), [
    ("", "my.yaml: found nothing where an experiment"),
    ("- 1\n", "my.yaml: found [1] where an experiment"),
    ("a: b: c\n", "my.yaml:1: not YAML: mapping values are not allowed here"),
    ("a:\n\tb: 1\n", "my.yaml:2: not YAML: found character"),
    ("a: 1\nb: &x [*x]\n", "my.yaml:2: b.0: contains itself"),
    ("a: !!python/object/apply:os.system [ls]\n", "my.yaml:1: a: the tag tag:yaml.org,2002:python/object"),
    ("a: !!int x\n", "my.yaml: a value does not fit its tag"),
    ("a: !!float ''\n", "my.yaml: a value does not fit its tag"),
    ("? [a]\n: 1\n", "my.yaml:1: a key must be a text"),
    ("~: 1\n", "my.yaml:1: a key is missing before the colon"),
    ("a: \x01\n", "my.yaml: not a YAML text"),
    ("a: " + "[" * 60 + "]" * 60, "my.yaml:1: nested more than 50 deep"),
    ("a: " + "[" * 5000, "my.yaml: nested too deeply"),
    ("a: 1\n---\nb: 2\n", "my.yaml:2: not YAML: but found another document"),
])
def test_what_is_no_experiment_is_refused_in_one_message(text: str, message: str) -> None:
    assert refused(text).startswith(message)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(UserError, match="byte 6 is not UTF-8"):
        parse(b"name: \xff", "my.yaml", Path(), "my")


@given(st.text())
@example("a: *x")
@example("%YAML 9.9\n---\na: 1")
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        read_yaml(text, "x")
    except UserError as error:
        assert str(error).startswith("x")


@pytest.mark.parametrize(("text", "lines"), [
    ("policy: x\n", ["my.yaml: workload: missing, and it is needed"]),
    ("workload: {}\npolicy: x\npolcy: y\n", ["my.yaml:3: polcy: unknown key; did you mean policy? allowed: name, "]),
    ("workload: [1]\npolicy: {nam: x}\nseed: -1\nsweep: {a: []}\nexpect: {a: b}\n", [
        "my.yaml:1: workload: found [1]; it must be a mapping", "my.yaml:3: seed: found -1; it must be greater than or",
        "my.yaml:2: policy.name: missing", "my.yaml:4: sweep.a: found []; it must have at least 1 item",
        "my.yaml:5: expect: found {\"a\": \"b\"}; it must be a list",
    ]),
    ("workload: {}\npolicy: x\nvariants:\n  a b: {}\n  c: 3\n", [
        "my.yaml:4: variants.a b: 'a b' is no name", "my.yaml:5: variants.c: found 3; it must be a mapping",
    ]),
    ("workload: {}\npolicy: x\nnote:\n  - {that: a, becaus: b}\n", [
        "my.yaml:4: note.0.becaus: unknown key; did you mean because? allowed: that, because",
    ]),
])
def test_the_top_level_is_strict(text: str, lines: list[str]) -> None:
    message = refused(text)
    assert all(line in message for line in lines), message
    assert len(message.splitlines()) == len(lines)


def test_sections_left_empty_are_left_out() -> None:
    found = written("workload: {}\npolicy: x\ncontrol:\nengine:\nvariants:\n")
    assert shape_of(found.raw, found, found).control == []


def test_an_unknown_name_lists_the_bundled_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: Path(f"{name}.yaml") for name in ("h200_ragged", "three_engines")}
    monkeypatch.setattr(document, "bundled", lambda: known)
    with pytest.raises(UserError) as caught:
        load("h200_raged")
    assert str(caught.value) == (
        "h200_raged: no such file, and no bundled experiment of that name; did you mean h200_ragged? "
        "bundled: h200_ragged, three_engines"
    )


@pytest.mark.parametrize("ending", ["", ".yaml", ".yml"])
def test_a_bundled_name_is_found_with_or_without_its_ending(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "demo.yaml").write_text("workload: {}\npolicy: x\n")
    monkeypatch.setattr(document, "bundled", lambda: {"demo": tmp_path / "demo.yaml"})
    found = load(f"demo{ending}")
    assert (found.name, found.source, found.folder) == ("demo", "demo.yaml", tmp_path)


def test_a_folder_is_no_experiment(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        load(tmp_path)


@pytest.mark.parametrize("name", sorted(bundled()))
def test_every_bundled_experiment_can_be_planned(name: str) -> None:
    assert plan(load(name)).cells
