"""Where a model comes from: a preset or config with random weights, a directory with weights, or the hub."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from ..models.find import existing, unknown
from ..models.shape import HERE, presets
from .errors import ExecutorError

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
FILES = "a Hugging Face directory, a config.json (random weights), or the name of a model on the hub"


@dataclass(frozen=True, slots=True)
class Source:
    """`config`: the config's file. `weights`: the directory that holds them; None: they are drawn at random."""

    name: str
    config: Path
    weights: Path | None


def find_source(name_or_path: str, base: Path | None = None) -> Source:
    """Raises `ExecutorError` where there is no such model, or a directory lacks its config or weights."""
    if name_or_path in presets():
        return Source(name_or_path, HERE / f"{name_or_path}.json", None)
    path = existing(name_or_path, base)
    if path is None and HUB_ID.fullmatch(name_or_path):
        path = _download(name_or_path)
    if path is None:
        raise ExecutorError(unknown("model", name_or_path, presets(), FILES))
    if path.is_dir():
        return Source(path.resolve().name, _config_of(path), _with_weights(path))
    return Source(path.resolve().parent.name if path.name == "config.json" else path.stem, path, None)


def _config_of(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise ExecutorError(f"{folder}: a model directory needs a config.json, this one has none")
    return folder / "config.json"


def _with_weights(folder: Path) -> Path:
    """The folder, if every file of its weights is there."""
    if (folder / INDEX).is_file():
        missing = sorted(name for name in _shards(folder / INDEX) if not (folder / name).is_file())
    else:
        missing = [] if (folder / SINGLE).is_file() else [SINGLE]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ExecutorError(
            f"{folder}: no weights: {missing[0]}{more} is not there (safetensors is what is read); to run the model's "
            f"shape with random weights, give {folder / 'config.json'}"
        )
    return folder


def _shards(index: Path) -> set[str]:
    try:
        return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ExecutorError(f"{index}: not an index of weights: {error}") from error


def _download(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=["*.json", "*.safetensors"]))
    except Exception as error:  # the hub's client, its cache and the network each have their own
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ExecutorError(
            f"'{hub_id}' is neither a preset nor a path here, and the hub gave no such model: {reason}"
        ) from error
