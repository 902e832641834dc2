"""The page of two runs side by side, which opens offline."""

from pathlib import Path
from types import MappingProxyType

from .atomic import write_file
from .compare import Comparison
from .comparison_tables import ModelErrors, findings
from .report import page, views_of
from .report_tables import cell_tables, folded, verdict_badge
from .run import Run


def write_comparison(
    path: Path | str, comparison: Comparison, runs: tuple[Run, Run], paths: tuple[str, str],
    model_errors: ModelErrors = MappingProxyType({}),
) -> None:
    """Write one self-contained HTML page: the verdict on the decisions and the numbers, then both runs overlaid.

    `paths`: what the two runs are called. Raises OSError, with one message that names `path`, where it cannot
    be written.
    """
    names = [f"{side}: {name}" for side, name in zip("ab", paths, strict=True)]
    cells = views_of({"": dict(zip(names, runs, strict=True))}, {names[1]: comparison.offset.seconds})
    badge = verdict_badge(f"decisions {_decisions(comparison)}")
    summaries = folded("the summary of each run", cell_tables(cells))
    write_file(path, page("a against b", cells, badge, findings(comparison, paths, model_errors), summaries))


def _decisions(comparison: Comparison) -> str:
    if not comparison.step_level:
        return "not comparable"
    return "IDENTICAL" if comparison.identical else "DIFFERENT"
