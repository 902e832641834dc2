"""What an experiment runs: the configuration of each variant in each cell, and the statements about them.

The order of changes is base, `--set`, sweep, variant. None of them is undone silently: a swept key that `--set` names
is swept no more, and it is an error where a variant would undo what `--set` or the sweep says.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .document import Document
from .errors import UserError, shown, suggestion
from .labels import folders, labels
from .origins import COMMAND, Origins, from_command
from .overrides import OverrideError, Settings, apply, cells, hides, parse_sets, refuse_hidden, refuse_unknown, unswept
from .shape import PARTS, Shape, shape_of, written
from .statement_tokens import StatementError
from .statements import Configs, Entry, check, entries_of
from .units import WITH_SECTIONS, with_units


@dataclass(frozen=True, slots=True)
class Config:
    """One variant in one cell, and where each of its keys was written.

    `raw` has the sections of `PARTS` that there are (`engine` always), `policy` as a mapping with its name, and
    quantities as numbers.
    """

    raw: Mapping[str, Any]
    origins: Origins

    def where(self, key: str) -> str:
        """The beginning of a message about a key."""
        return self.origins.where(key)


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of the swept values (`settings`), with the configuration of each variant that runs.

    `label` is for people ('' without a sweep), `folder` the same as a file name.
    """

    label: str
    folder: str
    settings: Settings
    configs: Mapping[str, Config]

    @property
    def raws(self) -> Configs:
        """What statements look keys up in."""
        return {variant: config.raw for variant, config in self.configs.items()}


@dataclass(frozen=True, slots=True)
class Plan:
    """An experiment as it will run."""

    document: Document
    shape: Shape
    variants: tuple[str, ...]
    cells: tuple[Cell, ...]
    entries: tuple[Entry, ...]


def plan(document: Document, sets: Sequence[str] = (), only: Sequence[str] = ()) -> Plan:
    """`sets` as given to `--set`, `only` the variants to run (all if empty). Raises `UserError`."""
    settings = parse_sets(sets)
    refuse_unknown(settings, list(Shape.model_fields), COMMAND)
    origins = from_command(document, settings)
    shape = shape_of(_applied(document.raw, settings, origins), document, origins)
    entries = entries_of(shape, origins)
    built = _cells(shape, settings, origins)
    chosen = _chosen(tuple(built[0].configs), only)
    refuse_hidden(_parts(settings), {name: shape.variants.get(name) or {} for name in chosen})
    _check(entries, origins, built)
    return Plan(document, shape, chosen, tuple(_only(cell, chosen) for cell in built), entries)


def _parts(settings: Settings) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key.split(".")[0] in PARTS}


def _chosen(variants: tuple[str, ...], only: Sequence[str]) -> tuple[str, ...]:
    for name in only:
        if name not in variants:
            raise UserError(f"--variant {name}: no such variant; {suggestion(name, variants, 'variants')}")
    return tuple(name for name in variants if name in only) if only else variants


def _only(cell: Cell, chosen: Sequence[str]) -> Cell:
    return Cell(cell.label, cell.folder, cell.settings, {name: cell.configs[name] for name in chosen})


def _check(entries: Sequence[Entry], origins: Origins, built: Sequence[Cell]) -> None:
    """Statements may be about cells and variants of the file that `--set` took away."""
    known = [*built, *_written(origins.document)]
    raws = [cell.raws for cell in known]
    variants = list(dict.fromkeys(name for cell in known for name in cell.configs))
    problems = []
    for entry in entries:
        try:
            check(entry.statement, variants, raws)
        except StatementError as error:
            problems.append(f"{origins.where(entry.key)}: {error}")
    if problems:
        raise UserError("\n".join(problems))


def _written(document: Document) -> list[Cell]:
    """The cells of the file as it stands; none where it needs a `--set` to be complete."""
    origins = Origins(document, {})
    try:
        return _cells(shape_of(document.raw, document, origins), {}, origins)
    except UserError:
        return []


def _cells(shape: Shape, settings: Settings, origins: Origins) -> list[Cell]:
    variants = _variants(shape, origins)
    swept = unswept(shape.sweep, _parts(settings))
    for key in shape.sweep:
        refuse_unknown({key: None}, PARTS, f"{origins.where('sweep')}: ")
    for name, own in variants.items():
        refuse_unknown(own, PARTS, f"{origins.where(f'variants.{name}')}: ")
        _refuse_unswept(origins, name, own, swept)
    base = _base(origins, _parts(settings))
    combinations = cells(swept)
    names = labels(combinations)
    return [
        Cell(label, folder, combination, _configs(base, origins, combination, variants))
        for label, folder, combination in zip(names, folders(names), combinations, strict=True)
    ]


def _base(origins: Origins, settings: Settings) -> dict[str, Any]:
    raw = written(origins.document.raw)
    return _applied({"engine": {}} | {key: raw[key] for key in PARTS if key in raw}, settings, origins)


def _refuse_unswept(origins: Origins, name: str, own: Settings, swept: Mapping[str, Any]) -> None:
    for later in own:
        for key, values in swept.items():
            if any(hides(later, key, value) for value in values):
                raise UserError(f"{origins.where(f'variants.{name}.{later}')}: the sweep varies {key}, and this "
                                "variant undoes it; take one of the two away")


def _variants(shape: Shape, origins: Origins) -> dict[str, Settings]:
    """The variants; without any, one that is called by the name of the policy."""
    if shape.variants:
        return {name: own or {} for name, own in shape.variants.items()}
    if shape.policy is None:
        raise UserError(f"{origins.where('policy')}: missing; name a policy, or let each variant name its own")
    name = shape.policy if isinstance(shape.policy, str) else shape.policy.name
    return {re.sub(r"[^A-Za-z0-9_.-]+", "_", name.rsplit(":", 1)[-1]).strip("._-") or "policy": {}}


def _configs(
    base: Mapping[str, Any], origins: Origins, combination: Settings, variants: Mapping[str, Settings],
) -> dict[str, Config]:
    swept = origins.changed("sweep", combination)
    raw = _applied(base, combination, swept)
    return {name: _config(raw, swept.changed(f"variants.{name}", own), own) for name, own in variants.items()}


def _config(base: Mapping[str, Any], origins: Origins, own: Settings) -> Config:
    raw = _applied(base, own, origins)
    raw |= {key: with_units(raw[key]) for key in WITH_SECTIONS if key in raw}
    return Config(raw | {"policy": _policy(raw.get("policy"), origins)}, origins)


def _applied(raw: Mapping[str, Any], settings: Settings, origins: Origins) -> dict[str, Any]:
    try:
        return apply(raw, settings)
    except OverrideError as error:
        raise UserError(f"{origins.where(error.key)}: {error.problem}") from error


def _policy(found: Any, origins: Origins) -> dict[str, Any]:
    """The policy as a mapping with its name."""
    if isinstance(found, str):
        return {"name": found}
    if isinstance(found, dict) and isinstance(found.get("name"), str):
        return found
    if isinstance(found, dict):
        raise UserError(f"{origins.where('policy')}: found {shown(found)} without a name; a policy given as a whole "
                        "needs its name (one option alone is changed with policy.option)")
    raise UserError(f"{origins.where('policy')}: {'missing' if found is None else f'found {shown(found)}'}; "
                    "name a policy here, or in each variant")
