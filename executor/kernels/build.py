"""Compiles a C++ file, with the headers beside it, into a shared library, once for each machine."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math",
    "-fno-signed-zeros", "-ffinite-math-only", "-fassociative-math", "-freciprocal-math",
)
COMPILERS = ("g++", "clang++", "c++")
PATIENCE = 300
"""Seconds that a compiler may take."""


class BuildError(ValueError):
    """There is no library, for the reason in the message."""


def load(source: Path) -> ctypes.CDLL:
    """The library of a source file, in this process. Raises `BuildError`."""
    path = build(source)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"{path} cannot be loaded: {error}") from error


def build(source: Path) -> Path:
    """The library of a source file: a finished one of the same source, compiler and processor, or a new one.

    Libraries are kept in `$XDG_CACHE_HOME/arcsim` (default `~/.cache/arcsim`). Raises `BuildError`.
    """
    compiler = _compiler()
    library = _folder() / f"{source.stem}-{_identity(source, compiler)}.so"
    if not library.is_file():
        _compile(compiler, source, library)
    return library


def _compiler() -> str:
    """`$CXX`, or the first of the usual names that is installed."""
    names = (os.environ["CXX"],) if os.environ.get("CXX") else COMPILERS
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        raise BuildError(f"no C++ compiler ({', '.join(names)} not found); install one, or name it in CXX")
    return found


def _folder() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arcsim"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(f"{folder} cannot be made ({error.strerror}); set XDG_CACHE_HOME") from error
    return folder


def _identity(source: Path, compiler: str) -> str:
    """What the library depends on. `-march=native` makes code for this processor alone."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    files = [source, *sorted(source.parent.glob("*.h"))]
    parts = (*(file.read_text(encoding="utf-8") for file in files), " ".join(FLAGS), version.stdout, _processor())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() + platform.machine()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def _compile(compiler: str, source: Path, library: Path) -> None:
    """Into a temporary name first, so that a half-written library is never taken for a finished one."""
    try:
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            fresh = Path(folder) / library.name
            command = [compiler, *FLAGS, "-o", str(fresh), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            if done.returncode:
                raise BuildError(f"{compiler} failed: {_first_error(done.stderr)}")
            fresh.replace(library)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{source.name} cannot be compiled: {error}") from error


def _first_error(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line] or text.splitlines() or ["no message"]
    return lines[0].strip()
