"""Which latency models there are, and how a config or a file becomes one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import yaml
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from ...models.hardware import Hardware
from ...models.shape import ModelShape
from .affine import Affine
from .model import LatencyModel
from .roofline import RooflineConfig, build_roofline
from .table import TableConfig

AnyLatency = Affine | RooflineConfig | TableConfig
LatencyConfig = Annotated[AnyLatency, Field(discriminator="kind")]
KINDS: Mapping[str, type[BaseModel]] = {"affine": Affine, "roofline": RooflineConfig, "table": TableConfig}
RECORD = "fitted"
"""Key of a latency file that tells where its numbers come from; the model does not read it."""


class LatencyError(ValueError):
    """A latency model that cannot be read or built."""


def parse_latency(keys: object, where: str = "latency") -> AnyLatency:
    """Check the keys of a latency model; times may carry units (`2.9ms`). Raises LatencyError naming `where`."""
    if not isinstance(keys, Mapping):
        raise LatencyError(f"{where}: a latency model is a list of keys and values, found {keys!r}")
    try:
        adapter: TypeAdapter[AnyLatency] = TypeAdapter(LatencyConfig)
        return adapter.validate_python(dict(keys))
    except ValidationError as error:
        raise LatencyError("; ".join(_problem(dict(found), where) for found in error.errors())) from None


def load_latency_file(path: Path) -> AnyLatency:
    """The latency model of a YAML file such as `arcsim fit` writes. Raises LatencyError with file and key; OSError."""
    try:
        keys = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise LatencyError(f"{path}: not a YAML file: {error}") from None
    if isinstance(keys, Mapping):
        keys = {key: value for key, value in keys.items() if key != RECORD}
    return parse_latency(keys, str(path))


def build_latency(
    config: AnyLatency, model: ModelShape | None = None, hardware: Hardware | None = None,
) -> LatencyModel:
    """The latency model. Raises LatencyError where it needs a model or a hardware that is not there."""
    if isinstance(config, Affine):
        return config
    if isinstance(config, TableConfig):
        return config.model()
    missing = [name for name, part in (("model", model), ("hardware", hardware)) if part is None]
    if model is None or hardware is None:
        raise LatencyError(f"the roofline latency model needs {' and '.join(missing)}: name a preset or a path")
    try:
        return build_roofline(config, model, hardware)
    except ValueError as error:
        raise LatencyError(f"latency: {error}") from None


def _problem(found: Mapping[str, Any], where: str) -> str:
    if found["type"].startswith("union_tag"):
        return f"{where}: 'kind' must be one of {', '.join(KINDS)}"
    kind, *path = (str(part) for part in found["loc"])
    key, message = ".".join(path), str(found["msg"]).removeprefix("Value error, ")
    if found["type"] == "extra_forbidden":
        return f"{where}: unknown key '{key}' (known for {_known(kind, path)})"
    value = "" if found["type"] == "value_error" else f", found {found['input']!r}"
    return f"{where}: '{key}': {message}{value}"


def _known(kind: str, path: Sequence[str]) -> str:
    """The keys that may stand where the last of `path` does."""
    model, *above = KINDS[kind], *path[:-1]
    for part in above:
        model = cast(type[BaseModel], model.model_fields[part].annotation)
    return f"{' '.join(above) or f'kind {kind}'}: {', '.join(model.model_fields)}"
