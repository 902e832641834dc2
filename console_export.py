"""A workload of any source, written for another tool; and what a person sees of that."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from .console import print_hanging, stdout
from .console_catalog import document_of
from .experiment.errors import UserError
from .experiment.parts import build_workload_of
from .experiment.plan import plan
from .traces.atomic import write_file
from .workloads.export import Export, export
from .workloads.workload import Workload


def export_file(source: str, format: str, out: Path, sets: Sequence[str], input_format: str) -> Export:
    """Write the workload of a trace, an experiment file or a bundled name to `out`, whole or not at all.

    Raises `UserError` where the source has several workloads, WorkloadError where the format cannot hold this one.
    """
    exported = export(_workload_of(source, sets, input_format), format)
    write_file(out, exported.text)
    return exported


def print_exported(exported: Export, out: Path) -> None:
    console = stdout()
    console.print(f"{exported.count:,} requests written to {escape(str(out))}", soft_wrap=True)
    for note in exported.notes:
        print_hanging(console, "note: ", note, "dim")
    print_hanging(console, "replay: ", exported.command(out), "bold")


def _workload_of(source: str, sets: Sequence[str], input_format: str) -> Workload:
    """Cells and variants may differ in anything but the workload."""
    planned = plan(document_of(source, input_format), sets)
    configs = {
        json.dumps(config.raw.get("workload"), sort_keys=True, default=str): (cell.label or name, config)
        for cell in planned.cells for name, config in cell.configs.items()
    }
    if len(configs) > 1:
        named = "; ".join(label for label, _ in configs.values())
        raise UserError(f"{source} has {len(configs)} workloads ({named}): choose one, such as with --set sweep={{}}")
    return build_workload_of(next(iter(configs.values()))[1])
