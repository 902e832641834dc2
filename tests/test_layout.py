"""The house: who may import whom, what is packaged, and how long a function may be."""

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = (
    ("configs", "models", "policies", "traces", "workloads"), ("engine",), ("executor", "sim"),
    ("conform", "experiment"), ("",),
)
"""From the ground up; '' is the root. A package imports from floors below its own, and from itself."""
NOT_OURS = {"build", "dist", "tests"}
LONGEST_FUNCTION, LONGEST_FILE = 60, 400


def folders() -> list[Path]:
    """The packages' folders, the root's first."""
    found = []
    for folder, below, files in os.walk(ROOT):
        ignored = NOT_OURS if folder == str(ROOT) else set()
        below[:] = [name for name in below if not name.startswith(".") and name not in ignored]
        if "__init__.py" in files:
            found.append(Path(folder))
    return sorted(found)


@cache
def modules() -> dict[str, ast.Module]:
    """Dotted names below the root, packages as `sim.latency.__init__`, with what they say."""
    files = [path for folder in folders() for path in sorted(folder.glob("*.py"))]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text()) for path in files}


def imported(name: str, tree: ast.AST) -> Iterator[str]:
    """Modules of the project that a module imports at any depth, named like those of `modules()`."""
    known = modules()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        above = name.split(".")[:-node.level]
        base = [*above, *(node.module.split(".") if node.module else [])]
        for alias in node.names:
            for parts in ([*base, alias.name], [*base, alias.name, "__init__"], base, [*base, "__init__"]):
                if ".".join(parts) in known:
                    yield ".".join(parts)
                    break
            else:
                raise AssertionError(f"{name} imports {alias.name} of {'.'.join(base)}, which is nowhere")


def floor(name: str) -> int:
    package = name.split(".")[0] if "." in name else ""
    return next(height for height, packages in enumerate(FLOORS) if package in packages)


def test_every_package_has_its_floor() -> None:
    known = {package for packages in FLOORS for package in packages}
    assert {name.split(".")[0] for name in modules() if "." in name} <= known


@pytest.mark.parametrize("name", modules())
def test_imports_point_down(name: str) -> None:
    """The ground floor's packages know nothing of each other, and neither do the two arms."""
    package = name.rpartition(".")[0].split(".")[0]
    for other in imported(name, modules()[name]):
        if other == "__init__":  # the version
            continue
        same = other.rpartition(".")[0].split(".")[0] == package
        assert same or floor(other) < floor(name), f"{name} imports {other}"


def test_modules_import_each_other_in_no_circle() -> None:
    """At the top of the module: what a function imports, and what only the type checker does, may point back."""
    graph = {name: set(imported(name, ast.Module(_at_the_top(tree), []))) for name, tree in modules().items()}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"a circle: {error.args[1]}")


def test_the_measured_arm_is_imported_when_it_is_asked_for() -> None:
    """So everything else works where torch is not installed."""
    needs = {name for name in modules() if name.startswith("executor.")}
    needs |= {"experiment.calibrate", "experiment.measured"}
    for name, tree in modules().items():
        if name not in needs:
            assert not needs & set(imported(name, ast.Module(_at_the_top(tree), []))), name


def _at_the_top(tree: ast.Module) -> list[ast.stmt]:
    return [node for node in tree.body if isinstance(node, ast.ImportFrom)]


@pytest.mark.parametrize("name", modules())
def test_a_module_says_what_it_is_and_imports_relatively(name: str) -> None:
    tree = modules()[name]
    assert ast.get_docstring(tree), f"{name} has no docstring"
    absolute = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    absolute += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    tops = {found.split(".")[0] for found in absolute}
    assert "arcsim" not in tops
    assert not tops & {"torch", "flash_attn"} or name.startswith("executor."), f"{name} imports torch"


@pytest.mark.parametrize("name", modules())
def test_functions_and_files_are_short(name: str) -> None:
    tree = modules()[name]
    long = [
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= LONGEST_FUNCTION
    ]
    assert not long
    assert len((ROOT / f"{name.replace('.', '/')}.py").read_text().splitlines()) <= LONGEST_FILE


def test_the_root_holds_modules_of_the_package_only() -> None:
    """Scripts and fixtures lie elsewhere: whatever ends in .py here is installed."""
    used = {other for name, tree in modules().items() for other in imported(name, tree)}
    alone = [name for name in modules() if "." not in name and name not in used]
    assert alone == ["__main__"], alone


def test_every_package_and_its_data_is_in_the_wheel() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    names = {".".join(["arcsim", *folder.relative_to(ROOT).parts]): folder for folder in folders()}
    assert sorted(setuptools["packages"]) == sorted(names)
    for name, folder in names.items():
        patterns = setuptools["package-data"].get(name, [])
        data = [path.name for path in folder.iterdir() if path.is_file() and path.suffix != ".py"]
        left_out = [file for file in data if not any(fnmatch(file, pattern) for pattern in patterns)]
        assert folder == ROOT or not left_out, f"{name}: {left_out}"


WATCHED = """
import sys
asked = []


class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "flash_attn"):
            asked.append(name)


sys.meta_path.insert(0, Watch())
from arcsim.cli import main
try:
    main(["simulate", "-c", "h200_ragged", "-o", sys.argv[1], "--set", "sweep.workload.count=[1]", "-q"])
finally:
    print(asked)
"""


def test_a_simulation_never_asks_for_torch(tmp_path: Path) -> None:
    """Not even to find out that it is not there."""
    done = subprocess.run([sys.executable, "-c", WATCHED, str(tmp_path / "out")], capture_output=True, text=True)
    assert done.stderr == "" and done.stdout.splitlines()[-1] == "[]"
