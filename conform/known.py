"""Differences that are known and accepted, named in a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from .difference import Difference


class Known(BaseModel):
    """Where a policy is known to part from a trace, and why. `step: run` stands for what is said of the whole run."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    step: int | Literal["run"]
    field: str
    because: str

    def names(self, difference: Difference) -> bool:
        return (self.step, self.field) == ("run" if difference.step is None else difference.step, difference.field)


KnownDifferences = Mapping[str, Known]
"""By the name of the trace's file."""


def load_known(path: Path) -> KnownDifferences:
    """Read a YAML file of `trace file: {step, field, because}`. Raises ValueError that names file and key."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        return TypeAdapter(dict[str, Known]).validate_python(content)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a YAML file: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        form = "a line is `trace.json: {step, field, because}`"
        raise ValueError(f"{path}: {where}: {first['msg']} ({form})") from error
