"""Changes to a configuration by dotted key: what `--set`, a sweep and a variant do to it."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .errors import UserError, shown, suggestion
from .yaml_text import read_yaml

Settings = Mapping[str, Any]
"""Dotted keys and their values, as in `{"policy.decode": "bucketed"}`."""

HOLDERS = ("sweep", "variants")
"""Sections whose own keys are dotted keys: `sweep.workload.count`, `variants.ragged.policy.decode`."""


class OverrideError(UserError):
    """A dotted key that cannot be set."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


def apply(raw: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """A deep copy of `raw` with the dotted keys set, a section before what lies in it.

    Mappings that are missing are made. A policy given by its name alone takes options: `policy: x` becomes
    `policy: {name: x}`. Raises `OverrideError` where a key lies below a value that is no mapping.
    """
    result: dict[str, Any] = copied(dict(raw))
    for key in sorted(settings, key=lambda dotted: dotted.count(".")):
        _put(result, key, _split(key, result), copied(settings[key]))
    return result


def copied(value: Any) -> Any:
    """A copy in which nothing is shared: an alias of YAML becomes a value of its own."""
    if isinstance(value, Mapping):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list) else value


def parse_set(text: str) -> tuple[str, Any]:
    """`a.b=value` as given to `--set`, the value read as YAML. Raises `UserError`."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals:
        raise UserError(f"--set {text}: no '='; write --set key=value, as in --set engine.max_num_seqs=64")
    if not re.fullmatch(r"[^\s.=]+(\.[^\s.=]+)*", key):
        raise UserError(f"--set {text}: {key!r} is no dotted key such as engine.max_num_seqs")
    if not value.strip():
        raise UserError(f"--set {text}: no value after '='; write null for none, or '\"\"' for an empty text")
    return key, read_yaml(value, f"--set {text}").value


def parse_sets(texts: Iterable[str]) -> dict[str, Any]:
    """All `--set` together; of a key given twice the last counts."""
    return dict(parse_set(text) for text in texts)


def lookup(config: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key. `policy` is the policy's name. Raises `KeyError` where there is none."""
    value: Any = config
    for part in key.split("."):
        if not isinstance(value, Mapping):
            raise KeyError(key)
        value = value[part]
    return value["name"] if key == "policy" and isinstance(value, Mapping) else value


def has(config: Mapping[str, Any], key: str) -> bool:
    """Whether there is a value (null counts) at a dotted key."""
    try:
        lookup(config, key)
    except KeyError:
        return False
    return True


def cells(sweep: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations of the swept values, the first key slowest; one empty combination where nothing is swept."""
    return [dict(zip(sweep, values, strict=True)) for values in itertools.product(*sweep.values())]


def hides(later: str, key: str, value: Any) -> bool:
    """Whether setting `later` undoes `key: value`, set before: it is the same key, one above, or one inside `value`."""
    if key == later or key.startswith(f"{later}."):
        return True
    return later.startswith(f"{key}.") and isinstance(value, Mapping) and has(value, later.removeprefix(f"{key}."))


def unswept(sweep: Mapping[str, list[Any]], sets: Settings) -> dict[str, list[Any]]:
    """The sweep without what `--set` fixes to one value.

    Raises `UserError` where a set key lies below a swept one: every swept value would replace it.
    """
    left = dict(sweep)
    for key, value in sets.items():
        for swept in sweep:
            if key.startswith(f"{swept}."):
                raise UserError(f"--set {key}: {swept} is swept and its values would replace it; give one value for "
                                f"all with --set {swept}=..., or other values with --set sweep.{swept}=[...]")
            if hides(swept, key, value):
                left.pop(swept, None)
    return left


def refuse_hidden(sets: Settings, variants: Mapping[str, Settings]) -> None:
    """Raises `UserError` where a variant would undo what `--set` says: nothing that a user sets is ignored silently."""
    for key, value in sets.items():
        hiding = {name: later for name, own in variants.items() for later in own if hides(later, key, value)}
        if hiding:
            name, later = next(iter(hiding.items()))
            raise UserError(f"--set {key}: would be undone by {later} in variants.{', variants.'.join(hiding)}; change "
                            f"it there (--set variants.{name}.{later}=...) or run other variants (--variant)")


def _split(key: str, raw: Mapping[str, Any]) -> list[str]:
    """The steps from mapping to mapping; below a sweep or a variant the rest is one dotted key."""
    section, _, rest = key.partition(".")
    if section not in HOLDERS or not rest:
        return key.split(".")
    if section == "sweep":
        return [section, rest]
    names = [name for name in raw.get(section) or {} if rest == name or rest.startswith(f"{name}.")]
    if not names and "." in rest:
        known = suggestion(rest.split(".")[0], raw.get(section) or {}, "variants")
        raise OverrideError(key, f"no such variant; {known}")
    name = max(names, key=len, default=rest)
    inner = rest.removeprefix(name).removeprefix(".")
    return [section, name, inner] if inner else [section, name]


def _put(target: dict[str, Any], key: str, steps: list[str], value: Any) -> None:
    for depth, step in enumerate(steps[:-1]):
        inner = target.get(step)
        if step == "policy" and depth == 0 and isinstance(inner, str):
            inner = {"name": inner}
        elif inner is None:
            inner = {}
        elif not isinstance(inner, dict):
            above = ".".join(steps[: depth + 1])
            raise OverrideError(key, f"{above} is {shown(inner)}, which has no keys of its own; set {above} as a whole")
        target[step] = inner
        target = inner
    target[steps[-1]] = value


def refuse_unknown(settings: Settings, allowed: Sequence[str], where: str) -> None:
    """Raises `UserError` where a dotted key begins with no section of an experiment."""
    for key in settings:
        section = key.split(".")[0]
        if section not in allowed:
            raise UserError(f"{where}{key}: there is no section {section}; {suggestion(section, allowed)}")
