"""Which latency models there are, and how a config or a file becomes one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from ...models.hardware import Hardware
from ...models.shape import ModelShape
from .affine import Affine
from .model import LatencyModel
from .roofline import RooflineConfig, build_roofline

LatencyConfig = Annotated[Affine | RooflineConfig, Field(discriminator="kind")]
RECORD = "fitted"
"""Key of a latency file that tells where its numbers come from; the model does not read it."""


class LatencyError(ValueError):
    """A latency model that cannot be read or built."""


def parse_latency(keys: object, where: str = "latency") -> Affine | RooflineConfig:
    """Check the keys of a latency model; times may carry units (`2.9ms`). Raises LatencyError naming `where`."""
    if not isinstance(keys, Mapping):
        raise LatencyError(f"{where}: a latency model is a list of keys and values, found {keys!r}")
    try:
        adapter: TypeAdapter[Affine | RooflineConfig] = TypeAdapter(LatencyConfig)
        return adapter.validate_python(dict(keys))
    except ValidationError as error:
        raise LatencyError("; ".join(_problem(dict(found), where) for found in error.errors())) from None


def load_latency_file(path: Path) -> Affine | RooflineConfig:
    """The latency model of a YAML file such as `arcsim fit` writes. Raises LatencyError with file and key; OSError."""
    try:
        keys = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise LatencyError(f"{path}: not a YAML file: {error}") from None
    if isinstance(keys, Mapping):
        keys = {key: value for key, value in keys.items() if key != RECORD}
    return parse_latency(keys, str(path))


def build_latency(
    config: Affine | RooflineConfig, model: ModelShape | None = None, hardware: Hardware | None = None,
) -> LatencyModel:
    """The latency model. Raises LatencyError where it needs a model or a hardware that is not there."""
    if isinstance(config, Affine):
        return config
    missing = [name for name, part in (("model", model), ("hardware", hardware)) if part is None]
    if model is None or hardware is None:
        raise LatencyError(f"the roofline latency model needs {' and '.join(missing)}: name a preset or a path")
    try:
        return build_roofline(config, model, hardware)
    except ValueError as error:
        raise LatencyError(f"latency: {error}") from None


def _problem(found: Mapping[str, Any], where: str) -> str:
    kinds: dict[str, type[BaseModel]] = {"affine": Affine, "roofline": RooflineConfig}
    if found["type"].startswith("union_tag"):
        return f"{where}: 'kind' must be one of {', '.join(kinds)}"
    kind, *path = (str(part) for part in found["loc"])
    key, message = ".".join(path), str(found["msg"]).removeprefix("Value error, ")
    if found["type"] == "extra_forbidden":
        return f"{where}: unknown key '{key}' (known for kind {kind}: {', '.join(kinds[kind].model_fields)})"
    value = "" if found["type"] == "value_error" else f", found {found['input']!r}"
    return f"{where}: '{key}': {message}{value}"
