"""From a config or a file to a latency model, and the messages on the way."""

from pathlib import Path

import pytest

from arcsim.models.hardware import load_hardware
from arcsim.models.shape import load_model
from arcsim.sim.latency.affine import Affine
from arcsim.sim.latency.config import LatencyError, build_latency, load_latency_file, parse_latency
from arcsim.sim.latency.roofline import Roofline, RooflineConfig


def test_the_kind_decides() -> None:
    assert parse_latency({"kind": "affine", "row": "0.639ms"}) == Affine(row=0.639e-3)
    assert parse_latency({"kind": "roofline", "kv_dtype": "bf16"}) == RooflineConfig(kv_dtype="bfloat16")


@pytest.mark.parametrize(("keys", "said"), [
    ({"kind": "affine", "decode": 1.0}, "latency: unknown key 'decode' (known for kind affine: kind, decode_step"),
    ({"kind": "oracle"}, "latency: 'kind' must be one of affine, roofline, table"),
    ({}, "latency: 'kind' must be one of affine, roofline, table"),
    ({"kind": "affine", "row": -1.0}, "latency: 'row': Input should be greater than or equal to 0, found -1.0"),
    ({"kind": "affine", "row": "1 parsec"}, "latency: 'row': '1 parsec' is not a quantity in s"),
    ({"kind": "roofline", "weight_dtype": "int3"}, "latency: 'weight_dtype': 'int3' is not a known number format"),
    ({"kind": "roofline", "tensor_parallel": 0}, "latency: 'tensor_parallel': Input should be greater than 0, found 0"),
    ([1], "latency: a latency model is a list of keys and values, found [1]"),
])
def test_what_is_wrong_is_said_with_its_key(keys: object, said: str) -> None:
    with pytest.raises(LatencyError) as error:
        parse_latency(keys)
    assert str(error.value).startswith(said) and "\n" not in str(error.value)


def test_a_file_is_read_without_its_record(tmp_path: Path) -> None:
    path = tmp_path / "latency.yaml"
    path.write_text("kind: affine\nrow: 0.639ms\ndecode_step: 2e-05\nfitted: {source: here}\n")
    assert load_latency_file(path) == Affine(row=0.639e-3, decode_step=2e-5)


@pytest.mark.parametrize(("text", "said"), [
    ("kind: affine\nrows: 1\n", "unknown key 'rows'"), ("{", "not a YAML file"), ("- 1", "a latency model is a list"),
])
def test_what_is_wrong_in_a_file_is_said_with_its_name(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "latency.yaml"
    path.write_text(text)
    with pytest.raises(LatencyError) as error:
        load_latency_file(path)
    assert str(error.value).startswith(f"{path}: ") and said in str(error.value)


def test_a_roofline_needs_a_model_and_a_hardware() -> None:
    config, model, hardware = RooflineConfig(), load_model("llama-3.1-8b"), load_hardware("h200")
    assert isinstance(build_latency(config, model, hardware), Roofline)
    with pytest.raises(LatencyError, match="needs model and hardware: name a preset"):
        build_latency(config)
    with pytest.raises(LatencyError, match="needs hardware: name a preset"):
        build_latency(config, model)
    with pytest.raises(LatencyError, match="latency: tensor_parallel 5 does not divide"):
        build_latency(RooflineConfig(tensor_parallel=5), model, hardware)


def test_an_affine_model_needs_neither() -> None:
    assert build_latency(Affine(row=1.0)) == Affine(row=1.0)
