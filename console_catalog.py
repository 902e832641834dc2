"""What there is: policies, workloads, experiments, models; and what a workload looks like."""

import inspect
from pathlib import Path
from typing import Any, get_args

from rich.table import Table

from .console import rows_table, stdout
from .experiment.document import ENDINGS, bundled, load
from .experiment.parts import build_workload_of
from .experiment.plan import plan
from .models.catalog import hardware_lines, model_lines
from .policies.base import EngineConfig, Policy
from .policies.find import known_policies
from .traces.summary_text import number, percent
from .workloads.build import build
from .workloads.catalog import catalog
from .workloads.config import load_config
from .workloads.statistics import LengthStatistics, WorkloadStatistics, describe
from .workloads.workload import Workload

Rows = list[dict[str, Any]]


def print_rows(rows: Rows) -> None:
    stdout().print(rows_table(rows))


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
    """The policy's own options, and the engine's limits with the policy's defaults."""
    options = [
        {"option": f"policy.{name}", "allowed": _allowed(field.annotation), "default": _yaml(field.default),
         "meaning": field.description or ""}
        for name, field in policy.Options.model_fields.items()
    ]
    engine = [
        {"option": f"engine.{name}", "allowed": _allowed(field.annotation),
         "default": _yaml(policy.engine_defaults.get(name, field.default)), "meaning": ""}
        for name, field in EngineConfig.model_fields.items() if name in policy.engine_keys
    ]
    return {"about": inspect.getdoc(policy) or "", "options": options, "engine": _with_auto(engine)}


def _with_auto(engine: Rows) -> Rows:
    for row in engine:
        if row["option"] == "engine.num_blocks":
            row |= {"allowed": "int or auto", "default": "auto", "meaning": "auto: what fits beside the model"}
        if row["option"] == "engine.max_model_len" and row["default"] == "null":
            row |= {"default": "the model's", "meaning": "longest prompt and output together"}
    return engine


def print_options(name: str, options: dict[str, Any]) -> None:
    console = stdout()
    console.print(f"[bold]{name}[/]: {options['about']}", highlight=False)
    console.print(rows_table([*options["options"], *options["engine"]]))


def statistics_of(source: str, sets: list[str], format: str) -> dict[str, WorkloadStatistics]:
    """Statistics of a trace file, or of the workload of each cell of an experiment. Raises `UserError`."""
    if not source.endswith(ENDINGS) and Path(source).exists():
        config = load_config({"kind": "trace", "path": source, "format": format})
        return {source: describe(build(config, Path.cwd()))}
    planned = plan(load(source), sets)
    found: dict[str, Workload] = {}
    for cell in planned.cells:
        found[cell.label or planned.shape.name] = build_workload_of(next(iter(cell.configs.values())))
    return {label: describe(workload) for label, workload in found.items()}


def print_statistics(found: dict[str, WorkloadStatistics]) -> None:
    console = stdout()
    for label, statistics in found.items():
        console.print(f"[bold]{label}[/]")
        console.print(_statistics(statistics))


def _statistics(statistics: WorkloadStatistics) -> Table:
    table = rows_table([])
    reuse = statistics.reuse
    for name, text in (
        ("requests", f"{statistics.count:,}"),
        ("span", _or_none(statistics.span, "s")), ("mean rate", _or_none(statistics.mean_rate, "/s")),
        ("CV of the gaps between arrivals", _or_none(statistics.interarrival_cv, "")),
        ("prompt tokens", _lengths(statistics.prompt)), ("output tokens", _lengths(statistics.output)),
        ("tokens in all", f"{statistics.total_tokens:,}"),
        ("prefix seen before, endless cache", f"{percent(reuse.tokens)} of the prompt tokens, {percent(reuse.pieces)} "
         f"of the hash blocks, {percent(reuse.blocks)} in whole blocks of {reuse.block_size}"),
    ):
        table.add_row(name, text)
    return table


def _lengths(lengths: LengthStatistics) -> str:
    quantiles = " · ".join(number(value) for value in (lengths.p50, lengths.p90, lengths.p99))
    return f"mean {number(lengths.mean)}, p50 · p90 · p99 {quantiles}, min {lengths.min:,}, max {lengths.max:,}"


def _or_none(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{number(value)} {unit}".strip()


def _first_line(policy: type[Policy]) -> str:
    module = inspect.getmodule(policy)
    return (inspect.getdoc(module) or inspect.getdoc(policy) or "").splitlines()[0]


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
    return {None: "null", True: "true", False: "false"}.get(value, str(value)) if not isinstance(value, int) or \
        isinstance(value, bool) else str(value)
