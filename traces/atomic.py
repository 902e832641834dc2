"""Files and folders that are either whole or not there."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

Writer = Callable[[Path], None]


def write_file(path: Path | str, text: str) -> None:
    """Write `text` (UTF-8). See `write_file_by`."""

    def write(beside: Path) -> None:
        beside.write_text(text, encoding="utf-8", newline="\n")

    write_file_by(path, write)


def write_file_by(path: Path | str, write: Writer) -> None:
    """Let `write` write a file under a temporary name, then rename it to `path`.

    Raises OSError, with one message that names `path`, where that cannot be done; nothing is left behind then, nor
    after an interruption.
    """
    target = Path(path)
    beside = _beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write(beside)
        os.replace(beside, target.resolve())
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def write_folder(path: Path | str, fill: Writer) -> None:
    """Let `fill` write into a temporary folder beside `path`, then rename that to `path`, replacing what is there.

    Raises OSError, with one message that names `path`, where that cannot be done; what was there stays.
    """
    target = Path(path)
    beside = _beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        fill(beside)
        _swap(beside, target.resolve())
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _beside(target: Path) -> Path:
    real = target.resolve()  # a link stays a link
    return real.parent / f".{real.name}.tmp-{os.getpid()}"


def _swap(new: Path, target: Path) -> None:
    if not target.exists():
        os.rename(new, target)
        return
    old = new.with_name(new.name + "-old")
    os.rename(target, old)
    try:
        os.rename(new, target)
    except OSError:
        os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _cannot_write(target: Path, error: OSError) -> OSError:
    return OSError(f"cannot write {target}: {error.strerror or error}")
