"""The `workload:` section: what it may hold and what it must not."""

from typing import Any, get_args

import pytest
from pydantic import ValidationError

from arcsim.workloads.catalog import catalog
from arcsim.workloads.config import FormatName, load_config
from arcsim.workloads.formats import FORMATS

SYNTHETIC: dict[str, Any] = {"kind": "synthetic", "count": 8, "prompt": 10, "output": 64}
TRACE: dict[str, Any] = {"kind": "trace", "path": "conv.csv"}


@pytest.mark.parametrize("section", [
    {"kind": "synthetic", "count": 8, "prompt": {"spread": [50, 500], "distinct": 8}, "output": 64,
     "arrivals": "at_once", "seed": 0},
    {"kind": "trace", "path": "conv.csv", "format": "auto", "limit": 1000, "rate": "x2"},
    SYNTHETIC | {"arrivals": {"poisson": 2}, "prefix": {"tokens": 512, "groups": 4, "order": "random"}},
    SYNTHETIC | {"arrivals": {"closed_loop": 4, "think_time": 0.5}, "max_tokens": {"factor": 1.5}},
    SYNTHETIC | {"priority": [0, 1], "max_tokens": 128},
    {"kind": "synthetic", "rows": [[10, 20], [30, 40]], "rows_order": "random", "priority": -1},
    {"kind": "synthetic", "rows": "lengths.csv", "count": 3},
    {"kind": "synthetic", "prompt": 1, "output": 1, "arrivals": {"explicit": [0, 1]}},
    TRACE | {"rate": 2.5, "window": [0, 60], "scale_prompt": 0.5, "scale_output": 2, "max_prompt": 4096},
    TRACE | {"arrivals": {"closed_loop": 8}, "zero_output": "one", "seed": 7, "format": "vidur", "rate": None},
])
def test_sections_are_taken_and_survive_being_saved(section: dict[str, Any]) -> None:
    config = load_config(section)
    assert load_config(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(("section", "reason"), [
    ({}, "kind"),
    ({"kind": "poem"}, "'synthetic', 'trace'"),
    (["synthetic"], "dictionary"),
    (SYNTHETIC | {"counts": 3}, "not permitted"),
    (SYNTHETIC | {"count": "8"}, "valid integer"),
    (SYNTHETIC | {"count": 0}, "greater than 0"),
    (SYNTHETIC | {"count": None}, "'count' is missing"),
    (SYNTHETIC | {"output": None}, "'output' is missing"),
    (SYNTHETIC | {"rows": [[1, 2]]}, "leave out 'prompt' and 'output'"),
    ({"kind": "synthetic", "rows": []}, "at least 1 item"),
    ({"kind": "synthetic", "rows": [[1, 0]]}, "greater than 0"),
    (SYNTHETIC | {"arrivals": {"explicit": [0, 1]}}, "2 times, 'count' is 8"),
    (SYNTHETIC | {"max_tokens": {"factor": 0.5}}, "greater than or equal to 1"),
    (SYNTHETIC | {"max_tokens": "many"}, "valid integer"),
    (SYNTHETIC | {"priority": []}, "at least 1 item"),
    (SYNTHETIC | {"prefix": {"tokens": 0}}, "greater than 0"),
    (SYNTHETIC | {"seed": -1}, "greater than or equal to 0"),
    (TRACE | {"path": ""}, "at least 1 character"),
    (TRACE | {"format": "parquet"}, "'plain'"),
    (TRACE | {"rate": "2x"}, "is no rate"),
    (TRACE | {"rate": "x0.0"}, "is no rate"),
    (TRACE | {"rate": -1}, "greater than 0"),
    (TRACE | {"window": [5, 5]}, "is empty"),
    (TRACE | {"window": [-5, 5]}, "greater than or equal to 0"),
    (TRACE | {"limit": 0}, "greater than 0"),
    (TRACE | {"rate": "x2", "arrivals": "at_once"}, "give one of the two"),
    (TRACE | {"limit": 3, "arrivals": {"explicit": [0, 1]}}, "2 times, 'limit' is 3"),
    (TRACE | {"scale_prompt": 0}, "greater than 0"),
])
def test_sections_that_mean_nothing_are_refused(section: Any, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        load_config(section)


def test_formats_have_one_set_of_names() -> None:
    assert {"auto", *(format.name for format in FORMATS)} == set(get_args(FormatName))


def test_the_catalog_has_one_line_for_each() -> None:
    entries = catalog()
    assert {entry.name for entry in entries if entry.group == "format"} == {format.name for format in FORMATS}
    assert {"synthetic", "trace"} == {entry.name for entry in entries if entry.group == "kind"}
    assert all(entry.about and "\n" not in entry.about for entry in entries)
