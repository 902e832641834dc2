"""Every command in docs/ works as it is written.

What counts are the blocks marked `bash`: each line of one is run, in order, in a folder of its own for each page that
holds the repository's docs, tests and bench. Comments in front of a block say more, and do not show on a page:

    <!-- not run: it needs a GPU -->    the block is skipped, for this reason
    <!-- exits with 1 -->               so its last line does (left out: all lines exit with 0)
    <!-- file: mine.yaml -->            a block of any kind, written to this file instead of being run

(Tried: a wrong option, a wrong exit code and a missing file in any page fail here.)
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
RUN_HERE = [page for page in PAGES if not (ROOT / "tests" / f"test_docs_{page.stem}.py").is_file()]
"""A page may have a test of its own, `test_docs_PAGE.py`, that runs its commands."""
NEEDED = ("docs", "tests", "bench", "configs")
BLOCK = re.compile(r"(?P<marks>(?:^<!-- [^\n]* -->\n)*)^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- (not run: (?P<why>.+)|exits with (?P<code>\d+)|file: (?P<file>[\w.-]+)) -->")
PATIENCE = 120
"""Seconds for one block."""


@dataclass(frozen=True, slots=True)
class Block:
    kind: str
    text: str
    why: str | None = None
    code: int = 0
    file: str | None = None


def blocks(page: str) -> Iterator[Block]:
    for found in BLOCK.finditer(page):
        marks: dict[str, str] = {}
        for line in found["marks"].splitlines():
            mark = MARK.fullmatch(line)
            if mark is not None:
                marks |= {key: value for key, value in mark.groupdict().items() if value}
        yield Block(found["kind"], found["text"], marks.get("why"), int(marks.get("code", 0)), marks.get("file"))


@pytest.mark.parametrize("page", RUN_HERE, ids=lambda page: page.stem)
def test_every_command_works(page: Path, tmp_path: Path) -> None:
    for name in NEEDED:
        (tmp_path / name).symlink_to(ROOT / name)
    skipped = []
    found = list(blocks(page.read_text(encoding="utf-8")))
    for block in found:
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.kind == "bash" and block.why is not None:
            skipped.append(block.why)
        elif block.kind == "bash":
            run(block, tmp_path)
    if skipped and all(block.why for block in found if block.kind == "bash"):
        pytest.skip(f"nothing on this page can be run here: {'; '.join(skipped)}")


def run(block: Block, folder: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    left = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text], cwd=folder, env=os.environ | {"PATH": path}, timeout=PATIENCE,
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )
    assert left.returncode == block.code, f"{block.text}\n{left.stdout}\n{left.stderr}"
    assert "Traceback" not in left.stderr, left.stderr


@pytest.mark.parametrize("page", RUN_HERE, ids=lambda page: page.stem)
def test_commands_stand_in_blocks_that_are_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    outside = BLOCK.sub("", text)
    assert not re.findall(r"^(?: {4}|\t)+(?:\$ )?(?:arcsim|python|pip|make) .*", outside, re.MULTILINE)
    unmarked = [block.text for block in blocks(text) if block.kind in ("", "console", "sh", "shell")]
    assert not [line for lines in unmarked for line in lines.splitlines() if re.match(r"(\$ )?(arcsim|make) ", line)]
    marks = re.findall(r"<!-- .* -->", text)
    assert not [mark for mark in marks if not MARK.fullmatch(mark)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]


def test_what_is_marked_is_understood() -> None:
    page = (
        "<!-- exits with 2 -->\n```bash\nfalse\n```\n\n<!-- not run: no GPU -->\n```bash\nx\n```\n"
        "<!-- file: a.py -->\n```python\ny\n```\n"
    )
    assert list(blocks(page)) == [
        Block("bash", "false\n", code=2), Block("bash", "x\n", why="no GPU"), Block("python", "y\n", file="a.py"),
    ]
