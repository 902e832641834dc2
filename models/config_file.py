"""A Hugging Face `config.json`, read key by key with errors that name the file and the key."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class ModelError(ValueError):
    """A model that cannot be found, read or understood."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The keys of one file. A key that is null counts as left out, as it does in transformers."""

    path: Path
    keys: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "ConfigFile":
        """ModelError where the file is not a JSON object; OSError where it cannot be opened."""
        try:
            keys = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ModelError(f"{path}: not a JSON file: {error}") from None
        if not isinstance(keys, dict):
            raise ModelError(f"{path}: a model's config is a JSON object, this is a {type(keys).__name__}")
        return cls(path, keys)

    def integer(self, key: str, default: int | None = None) -> int:
        """A count. Without a default the key is required."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ModelError(f"{self.path}: '{key}' must be a whole number from 0 up, found {value!r}")
        return value

    def positive(self, key: str, default: int | None = None) -> int:
        value = self.integer(key, default)
        if value == 0:
            raise ModelError(f"{self.path}: '{key}' must be more than 0")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise ModelError(f"{self.path}: '{key}' must be a text, found {value!r}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise ModelError(f"{self.path}: '{key}' must be true or false, found {value!r}")
        return value

    def part(self, key: str) -> "ConfigFile | None":
        """A nested object, None where it is left out."""
        value = self.keys.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ModelError(f"{self.path}: '{key}' must be an object, found {value!r}")
        return ConfigFile(self.path, value)

    def _get(self, key: str, default: Any) -> Any:
        value = self.keys.get(key)
        value = default if value is None else value
        if value is None:
            raise ModelError(f"{self.path}: the key '{key}' is missing")
        return value
