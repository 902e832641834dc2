"""Policies by name: those in this folder, and those that a user brings."""

import difflib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

from .base import Policy


class PolicyNotFound(ValueError):
    """There is no policy under that name; the message lists what there is."""


def known_policies() -> dict[str, type[Policy]]:
    """The schedulers of this folder, by the name of their file."""
    package = __name__.rpartition(".")[0]
    folder = Path(__file__).parent
    names = sorted(module.name for module in pkgutil.iter_modules([str(folder)]) if not module.ispkg)
    found = {name: _own_policies(importlib.import_module(f"{package}.{name}")) for name in names if name != "find"}
    return {name: classes[0] for name, classes in found.items() if classes}


def find_policy(name: str, base: Path | None = None) -> type[Policy]:
    """A policy by its name, as `path/to/file.py:Class` (relative to `base`, then to the working directory), or as
    `package.module:Class`. Raises `PolicyNotFound`."""
    if ":" not in name:
        return _by_name(name)
    place, _, class_name = name.rpartition(":")
    module = _load_file(place, base) if place.endswith(".py") else _import(place)
    found = getattr(module, class_name, None)
    if not (inspect.isclass(found) and issubclass(found, Policy)):
        classes = ", ".join(policy.__name__ for policy in _own_policies(module)) or "none"
        raise PolicyNotFound(f"{place} has no policy {class_name!r} (policies in it: {classes})")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise PolicyNotFound(f"{class_name} in {place} lacks {missing}")
    return found


def _by_name(name: str) -> type[Policy]:
    known = known_policies()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise PolicyNotFound(f"no policy {name!r}; {hint}known: {', '.join(known)}, or your own as path/to/file.py:Class")


def _own_policies(module: ModuleType) -> list[type[Policy]]:
    return [
        value for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Policy) and value.__module__ == module.__name__
        and value is not Policy
    ]


def _load_file(place: str, base: Path | None) -> ModuleType:
    paths = [folder / place for folder in (base, Path.cwd()) if folder is not None]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise PolicyNotFound(f"no file {place} in {' or '.join(str(path.parent) for path in dict.fromkeys(paths))}")
    name = f"arcsim_policy_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # any file ending in .py has them
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pydantic look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _broken(str(path), error) from error
    return module


def _import(place: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except Exception as error:
        raise _broken(place, error) from error


def _broken(place: str, error: Exception) -> PolicyNotFound:
    line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
    return PolicyNotFound(f"{place} cannot be imported: {type(error).__name__}: {error}{line}")
