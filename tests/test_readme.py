"""What the README shows works as shown."""

import re
from pathlib import Path

import pytest

from arcsim.cli import main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MINI = ROOT / "docs" / "mini_policy.py"


def block(language: str) -> str:
    """The only block of that language."""
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert len(found) == 1
    return found[0]


def simulate(config: Path, out: Path, *more: str) -> int | str | None:
    with pytest.raises(SystemExit) as left:
        main(["simulate", "--config", str(config), "--out", str(out), "--quiet", *more])
    return left.value.code


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "my.yaml"
    path.write_text(block("yaml"), encoding="utf-8")
    return path


def test_the_policy_is_the_file() -> None:
    assert block("python") == MINI.read_text(encoding="utf-8")


def test_the_policy_runs_and_keeps_the_laws(tmp_path: Path, experiment: Path) -> None:
    sets = (f"policy={MINI}:ShortestFirst", "variants={}", "expect=[]", "control=[]", "workload.count=60")
    options = (option for each in sets for option in ("--set", each))
    assert simulate(experiment, tmp_path / "run", *options, "--audit") == 0


def test_the_experiment_is_confirmed(tmp_path: Path, experiment: Path) -> None:
    assert simulate(experiment, tmp_path / "run") == 0


@pytest.mark.parametrize("path", re.findall(r"\]\(((?:docs|bench)/[^)]+)\)", README))
def test_what_it_links_to_is_there(path: str) -> None:
    assert (ROOT / path).is_file()


def test_the_pages_name_every_column() -> None:
    """docs/trace.md lists the columns of all tables."""
    from arcsim.traces.schema import REQUEST_COLUMNS, SAMPLE_COLUMNS, STEP_COLUMNS

    page = (ROOT / "docs" / "trace.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+)\*? \| \w+ \| ", page, re.MULTILINE)
    named = [row for row in rows if row != "column"]
    assert named == [column.name for column in (*STEP_COLUMNS, *REQUEST_COLUMNS, *SAMPLE_COLUMNS)]
