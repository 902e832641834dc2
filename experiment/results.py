"""What an experiment came to: its runs, its verdict, and the folder they are written to."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..traces.atomic import write_folder
from ..traces.metrics import Summary, summarise
from ..traces.plain import plain
from ..traces.report import write_sweep_report
from ..traces.run import Run
from .jobs import Key
from .plan import Plan
from .run_facts import RunFacts
from .target import RECORD, REPORT, check_target, is_taken
from .verdict import Observation, Verdict, judge


@dataclass(frozen=True)
class Results:
    """`runs` by cell and variant; a run that an interruption left out is missing."""

    plan: Plan
    runs: Mapping[Key, Run]

    @cached_property
    def summaries(self) -> Mapping[Key, Summary]:
        return {key: summarise(run) for key, run in self.runs.items()}

    @cached_property
    def verdict(self) -> Verdict:
        """Cells of which a run is missing are not judged."""
        return judge(self.plan.entries, [
            Observation(cell.label, {name: cell.raws[name] for name in runs}, RunFacts(runs), _problems(runs))
            for cell, runs in zip(self.plan.cells, self.by_cell, strict=True)
        ])

    @cached_property
    def by_cell(self) -> list[dict[str, Run]]:
        """The runs of each cell, by variant."""
        return [
            {name: self.runs[place, name] for name in cell.configs if (place, name) in self.runs}
            for place, cell in enumerate(self.plan.cells)
        ]

    @property
    def interrupted(self) -> bool:
        """Not everything that was planned was run to its end."""
        planned = sum(len(cell.configs) for cell in self.plan.cells)
        return len(self.runs) < planned or any(run.outcome == "interrupted" for run in self.runs.values())

    @property
    def exit_code(self) -> int:
        """That of the verdict, which is INVALID where a run did not complete."""
        return self.verdict.exit_code

    def as_dict(self) -> dict[str, Any]:
        cells = [
            {
                "label": cell.label, "settings": dict(cell.settings),
                "variants": {name: self.summaries[place, name].to_dict() for name in runs},
            }
            for place, (cell, runs) in enumerate(zip(self.plan.cells, self.by_cell, strict=True))
        ]
        verdict = self.verdict.as_dict() | {"exit_code": self.exit_code}
        answer: dict[str, Any] = plain(
            {
                "experiment": self.plan.shape.name, **verdict, "notes": self.notes,
                "runs": [self.place(key).as_posix() for key in self.runs], "cells": cells,
            }
        )
        return answer

    def save(self, folder: Path) -> Path:
        """Write runs, record and report: the whole folder or nothing. Returns the folder: what was interrupted goes
        beside a former result instead of replacing it. Raises `UserError`, `OSError`."""
        if self.interrupted and is_taken(folder):
            folder = folder.with_name(f"{folder.name}.interrupted")
        check_target(folder)
        write_folder(folder, self._fill)
        return folder

    def _fill(self, folder: Path) -> None:
        for key, run in self.runs.items():
            _write_run(run, folder / self.place(key))
        record = json.dumps(self.as_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        (folder / RECORD).write_text(record, encoding="utf-8")
        findings = [finding.as_dict() for finding in self.verdict.findings]
        cells = {cell.label: runs for cell, runs in zip(self.plan.cells, self.by_cell, strict=True) if runs}
        write_sweep_report(
            folder / REPORT, self.plan.shape.name, cells, verdict=self.verdict.outcome or "", statements=findings,
            notes=self.notes,
        )

    def place(self, key: Key) -> Path:
        """Where a run lies inside the folder: at its top where it is the only one."""
        if len(self.plan.cells) == len(self.plan.variants) == 1:
            return Path()
        return Path(self.plan.cells[key[0]].folder) / key[1]

    @property
    def notes(self) -> list[str]:
        """What the runs have to say, once each, in order."""
        return list(dict.fromkeys(note for run in self.runs.values() for note in run.meta["notes"]))


def _problems(runs: Mapping[str, Run]) -> dict[str, str]:
    """The first line of each report; the rest is in the record of the run."""
    return {
        name: (run.meta["report"] or run.outcome).splitlines()[0]
        for name, run in runs.items() if run.outcome != "completed"
    }


def _write_run(run: Run, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    run.save(folder)
