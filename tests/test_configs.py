"""The bundled experiments: each can be found, read and planned, and says what it is."""

from pathlib import Path

import pytest

from arcsim.experiment.document import bundled, load
from arcsim.experiment.parts import build_parts
from arcsim.experiment.plan import plan

from .command import arcsim

NEEDS = {
    "azure_conv": ("workload.path", "data/traces/azure_llm_2023/AzureLLMInferenceTrace_conv.csv"),
    "three_engines": ("workload.path", "data/traces/mooncake_fast25/conversation_trace.head5000.jsonl"),
}
"""Bundled experiments that need a file which does not come with arcsim."""


def test_those_there_are() -> None:
    assert {"h200_ragged", "azure_conv"} <= bundled().keys()


@pytest.mark.parametrize("name", bundled())
def test_it_says_what_it_is(name: str) -> None:
    document = load(name)
    assert document.name == name == plan(document).shape.name
    assert len(str(document.raw["description"])) > 20
    assert bundled()[name].read_text().startswith("# ")


@pytest.mark.parametrize("name", bundled())
def test_every_variant_of_every_cell_can_be_built(name: str, request: pytest.FixtureRequest) -> None:
    sets = []
    if name in NEEDS:
        key, file = NEEDS[name]
        sets = [f"{key}={request.getfixturevalue('shared') / file}"]
    planned = plan(load(name), sets)
    for cell in planned.cells:
        for config in cell.configs.values():
            parts = build_parts(config)
            assert parts.workload.count > 0
            assert not [note for note in parts.notes if "not heeded" in note]


def test_they_are_found_with_and_without_their_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a file of that name here is taken instead."""
    monkeypatch.chdir(tmp_path)
    assert load("h200_ragged.yaml").raw == load("h200_ragged").raw
    (tmp_path / "h200_ragged.yaml").write_text("name: mine\n")
    assert load("h200_ragged.yaml").name == "mine" and load("h200_ragged").name == "h200_ragged"


def test_they_are_listed_with_what_they_are() -> None:
    rows = {row["config"]: row["what it is"] for row in arcsim("configs", "--json").json}
    assert rows.keys() == bundled().keys() and "length rule" in rows["h200_ragged"]
