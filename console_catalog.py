"""What there is: policies, workloads, experiments, models; and what a workload looks like."""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from rich.markup import escape

from .console import ENDLESS, print_hanging, print_lines, stdout
from .experiment.document import ENDINGS, Document, bundled, load
from .experiment.engine_section import EngineSection
from .experiment.parts import build_workload_of
from .experiment.plan import plan
from .models.catalog import hardware_lines, model_lines
from .policies.base import EngineConfig, Policy
from .policies.find import known_policies
from .traces.summary_text import number, percent
from .workloads.catalog import catalog
from .workloads.statistics import LengthStatistics, WorkloadStatistics, describe
from .workloads.workload import Workload

Rows = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Described:
    """A workload's statistics, and what was noticed when it was read."""

    statistics: WorkloadStatistics
    notes: Sequence[str]


def print_rows(rows: Rows) -> None:
    """A line each, the names of the columns first."""
    print_lines(stdout(ENDLESS), [list(rows[0]), *(list(row.values()) for row in rows)])


def policy_rows() -> Rows:
    return [{"policy": name, "what it is": _first_line(policy)} for name, policy in known_policies().items()]


def workload_rows() -> Rows:
    return [{"group": entry.group, "name": entry.name, "what it is": entry.about} for entry in catalog()]


def config_rows() -> Rows:
    found = {name: load(name) for name in bundled()}
    return [{"config": name, "what it is": document.raw.get("description", "")} for name, document in found.items()]


def model_rows() -> Rows:
    lines = [("model", line) for line in model_lines()] + [("hardware", line) for line in hardware_lines()]
    split = [(group, *line.split(": ", 1)) for group, line in lines]
    return [{"": group, "name": name, "what it is": about} for group, name, about in split]


def policy_options(policy: type[Policy]) -> dict[str, Any]:
    """The policy's own options, and the engine's limits that it heeds with its defaults."""
    options = [_option(f"policy.{name}", field, field.default) for name, field in policy.Options.model_fields.items()]
    general = {name: field.default for name, field in EngineConfig.model_fields.items()}
    defaults = general | {"num_blocks": "auto", "max_model_len": "the model's"} | dict(policy.engine_defaults)
    engine = [
        _option(f"engine.{name}", field, defaults[name])
        for name, field in EngineSection.model_fields.items() if name in policy.engine_keys
    ]
    return {"about": _about(policy), "options": options, "engine": engine}


def _option(name: str, field: FieldInfo, default: Any) -> dict[str, str]:
    limits = "".join(f" {_limit(part)}" for part in field.metadata)
    return {"option": name, "allowed": f"{_allowed(field.annotation)}{limits}", "default": _yaml(default),
            "meaning": field.description or ""}


def _limit(part: Any) -> str:
    """`>= 0` of a constraint."""
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    return " and ".join(f"{sign} {getattr(part, name)}" for name, sign in signs.items() if hasattr(part, name))


def print_options(name: str, options: dict[str, Any]) -> None:
    console = stdout()
    console.print(f"[bold]{escape(name)}[/]", soft_wrap=True)
    for paragraph in filter(None, options["about"].split("\n\n")):
        print_hanging(console, "", " ".join(paragraph.split()))
    console.print()
    for option in (*options["options"], *options["engine"]):
        print_hanging(console, option["option"], f": {option['allowed']} (default: {option['default']})", "bold")
        print_hanging(console, "    ", option["meaning"])


def statistics_of(source: str, sets: Sequence[str], format: str) -> dict[str, Described]:
    """Statistics of a trace file, or of the workload of each cell of an experiment. Raises `UserError`."""
    planned = plan(document_of(source, format), sets)
    found: dict[str, Workload] = {}
    for cell in planned.cells:
        found[cell.label or planned.shape.name] = build_workload_of(next(iter(cell.configs.values())))
    return {label: Described(describe(workload), getattr(workload, "notes", ())) for label, workload in found.items()}


def document_of(source: str, format: str = "auto") -> Document:
    """The experiment of that file or bundled name, or one made up around a trace file. Raises `UserError`."""
    return _of_trace(source, format) if _is_trace(source) else load(source)


def _is_trace(source: str) -> bool:
    return not source.endswith(ENDINGS) and Path(source).exists()


def _of_trace(path: str, format: str) -> Document:
    """As the experiment that a trace file would be the workload of; `--set` changes it."""
    raw = {"workload": {"kind": "trace", "path": path, "format": format}, "policy": "any"}
    return Document(Path(path).stem or "trace", path, Path.cwd(), raw, {})


def print_statistics(found: Mapping[str, Described]) -> None:
    console = stdout()
    for label, described in found.items():
        console.print(f"[bold]{escape(label)}[/]", soft_wrap=True)
        print_lines(console, _statistics(described.statistics))
        for note in described.notes:
            print_hanging(console, "note: ", note, "dim")


def _statistics(statistics: WorkloadStatistics) -> list[tuple[str, str]]:
    reuse = statistics.reuse
    return [
        ("requests", f"{statistics.count:,}"),
        ("span", _or_none(statistics.span, "s")), ("mean rate", _or_none(statistics.mean_rate, "/s")),
        ("CV of the gaps between arrivals", _or_none(statistics.interarrival_cv, "")),
        ("prompt tokens", _lengths(statistics.prompt)), ("output tokens", _lengths(statistics.output)),
        ("tokens in all", f"{statistics.total_tokens:,}"),
        ("prefix seen before (endless cache)", f"{percent(reuse.tokens)} of the prompt tokens, {percent(reuse.pieces)} "
         f"of the hash blocks, {percent(reuse.blocks)} in whole blocks of {reuse.block_size}"),
    ]


def _lengths(lengths: LengthStatistics) -> str:
    quantiles = " · ".join(number(value) for value in (lengths.p50, lengths.p90, lengths.p99))
    return f"mean {number(lengths.mean)}, p50 · p90 · p99 {quantiles}, min {lengths.min:,}, max {lengths.max:,}"


def _or_none(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{number(value)} {unit}".strip()


def _first_line(policy: type[Policy]) -> str:
    module = inspect.getmodule(policy)
    return next(iter((inspect.getdoc(module) or _about(policy)).splitlines()), "")


def _about(policy: type[Policy]) -> str:
    """Its own docstring, not that of the class it is of."""
    return inspect.cleandoc(policy.__doc__ or "")


def _allowed(annotation: Any) -> str:
    if annotation is None or annotation is type(None):
        return "null"
    members = get_args(annotation)
    if not members:
        return annotation.__name__ if isinstance(annotation, type) else _yaml(annotation)
    return " or ".join(dict.fromkeys(_allowed(member) for member in members if not _is_constraint(member)))


def _is_constraint(member: Any) -> bool:
    return not isinstance(member, str | int | type) and not get_args(member) and member is not None


def _yaml(value: Any) -> str:
    """As it would stand in an experiment."""
    if value is PydanticUndefined:
        return "must be given"
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)
